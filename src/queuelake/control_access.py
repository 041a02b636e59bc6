"""What can be asked about users and their permissions, and about logging in to the console.

As in control.py, the Structs are the answers of the broker and of the REST API alike. No password
and no hash is ever in one.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from queuelake.apikey import Role
from queuelake.control_admin import Next
from queuelake.settings import AclRule

# Operations, with their arguments.
LOG_IN: Final = "log_in"  # name, password, ip -> ConsoleUser
CONSOLE_USER: Final = "console_user"  # name -> ConsoleUser
USERS: Final = "users"  # limit, cursor -> UserPage
USER: Final = "user"  # name -> UserInfo
USER_ADD: Final = "user_add"  # name, and what NewUser has -> UserInfo
USER_CHANGE: Final = "user_change"  # name, and what UserChange has -> UserInfo
USER_DELETE: Final = "user_delete"  # name -> None
ACL: Final = "acl"  # -> AclInForce
ACL_RULES: Final = "acl_rules"  # -> AclRules
ACL_REPLACE: Final = "acl_replace"  # rules (JSON: NewRules), version (*: any) -> AclRules
ACCESS_RELOAD: Final = "access_reload"  # -> None: somebody else has changed the files

SECRETS: Final = ("password", "password_hash")  # arguments which are written down nowhere
ANY_VERSION: Final = "*"
RULES_MAX: Final = 10_000

RoleOrNone = Literal["none", "viewer", "operator", "admin"]
Password = Annotated[str, Meta(min_length=1, max_length=4096, description="as it is typed")]
PasswordHash = Annotated[
    str, Meta(min_length=1, max_length=4096, description="as mosquitto_passwd writes it")
]
RoleWanted = Annotated[RoleOrNone, Meta(description="what the user may do in the console")]
Platform = Annotated[bool, Meta(description="whether clients with this name are platform accounts")]


class ConsoleUser(Struct, frozen=True):
    """`log_in`, `console_user`: no role is a wrong password, or a user who has none or is gone.

    With another password or role the proof is another one. It is a digest, for the console alone.
    """

    role: Role | None = None
    proof: bytes = b""


class UserInfo(Struct, frozen=True):
    name: str
    role: Annotated[RoleOrNone, Meta(description="what the user may do in the console")] = "none"
    platform: Platform = False
    configured_platform: Annotated[
        bool, Meta(description="in `auth.platform_users`: cannot be taken away here")
    ] = False


class UserPage(Struct, frozen=True):
    """`users`: sorted by name."""

    users: list[UserInfo]
    enforced: Annotated[
        bool, Meta(description="whether clients are checked against them (`auth.password_file`)")
    ]
    next: Next = None


class NewUser(Struct, frozen=True, forbid_unknown_fields=True):
    """A password, or the hash of one."""

    password: Password | None = None
    password_hash: PasswordHash | None = None
    role: RoleWanted = "none"
    platform: Platform = False


class UserChange(Struct, frozen=True, forbid_unknown_fields=True):
    """What is null or missing stays."""

    password: Password | None = None
    password_hash: PasswordHash | None = None
    role: RoleWanted | None = None
    platform: Platform | None = None


class AclRules(Struct, frozen=True):
    """`acl_rules`: those which the broker keeps, and which can be changed."""

    version: Annotated[str, Meta(description="changes with the rules; also the ETag")]
    rules: list[AclRule]


class AclInForce(AclRules, frozen=True):
    """`acl`: the first rule which fits decides: of `rules`, then `configured`, then `shipped`."""

    configured: Annotated[list[AclRule], Meta(description="`[[acl]]` of the configuration")]
    shipped: list[AclRule]


class NewRules(Struct, frozen=True, forbid_unknown_fields=True):
    rules: Annotated[list[AclRule], Meta(max_length=RULES_MAX)]
