"""What a review found in mailboxes, on a node whose time and commits are in our hand."""

from __future__ import annotations

import pytest

from queuelake.settings import AclRule
from tests.ecq.node import MailboxNode
from tests.harness.packets import Will


@pytest.mark.parametrize(("client_id", "again"), [("other", []), ("o", ["k=v"])])
def test_a_will_rewinds_the_mailbox_of_its_own_client_only(
    client_id: str, again: list[str]
) -> None:
    node = MailboxNode(acl=[AclRule("allow", ["$ECQ/#"], action="publish")])
    node.write("o", "k", "v")
    assert node.read("o") == ["k=v"]
    node.client(client_id, clean=True, will=Will("$ECQ/o/$rewind", b'{"to":"first"}', 1)).hang_up()
    node.pass_time(100)
    assert node.read("o") == again
