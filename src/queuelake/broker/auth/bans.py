"""Who is refused at CONNECT: bans by rule, and addresses which failed to log in too often.

Both tables are bounded. Neither has a clock: `now` comes from the caller, in seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, NamedTuple, final

from queuelake.broker.auth.matchers import Address, Network, parse_address, parse_network
from queuelake.errors import ConfigError, RefusedError
from queuelake.settings import Ban

BANS_MAX: Final = 10_000
FAILED_LOGINS_MAX: Final = 10_000
# One address may be a whole site behind NAT: over all its user names it gets this many times more.
ADDRESS_FACTOR: Final = 10

BanKind = Literal["clientid", "username", "ip"]
NetworkKey = tuple[int, int, int]
FailureKey = tuple[int | None, str]


class RunTimeBan(NamedTuple):
    kind: BanKind
    value: str
    until: float | None


RunTimeBans = list[RunTimeBan]  # a name of its own: inside Bans, `list` is the method


@final
class Bans:
    """Bans of the configuration, and those added while running.

    A `[[bans]]` entry refuses a client which fits all the fields it names.
    """

    __slots__ = ("_added", "_fixed", "_networks")

    def __init__(self, bans: list[Ban]) -> None:
        mistakes: list[str] = []
        self._fixed: list[tuple[Ban, Network | None]] = []
        for index, ban in enumerate(bans):
            if not (ban.clientid or ban.username or ban.ip):
                mistakes.append(f"bans[{index}]: names nobody; allowed: clientid, username or ip")
                continue
            try:
                self._fixed.append((ban, parse_network(ban.ip) if ban.ip else None))
            except ValueError as error:
                mistakes.append(f"bans[{index}].ip: {error}")
        if mistakes:
            raise ConfigError(mistakes)
        self._added: dict[tuple[BanKind, str], float | None] = {}
        # By width of the address, length of the prefix and its bits: a look-up, however many.
        self._networks: dict[NetworkKey, float | None] = {}

    def add(self, kind: BanKind, value: str, until: float | None, now: float = 0.0) -> None:
        """Ban until this time, None for ever; replaces an older ban of the same thing.

        Raises:
            RefusedError: the value is no address or network, or there are too many bans.
        """
        value = self._canonical(kind, value)
        if (kind, value) not in self._added and len(self._added) >= BANS_MAX:
            self._forget_expired(now)
            if len(self._added) >= BANS_MAX:
                raise RefusedError(f"{kind} {value!r}: there are {BANS_MAX} bans, the limit")
        self._added[(kind, value)] = until
        if kind == "ip":
            self._networks[_network_key(parse_network(value))] = until

    def remove(self, kind: BanKind, value: str) -> bool:
        """End a ban that was added while running; False when there is none."""
        value = self._canonical(kind, value)
        if (kind, value) not in self._added:
            return False
        del self._added[(kind, value)]
        if kind == "ip":
            del self._networks[_network_key(parse_network(value))]
        return True

    def list(self) -> RunTimeBans:
        """The bans added while running, expired ones included until they are forgotten."""
        return [RunTimeBan(kind, value, until) for (kind, value), until in self._added.items()]

    def refuses(self, client_id: str, username: str | None, ip: str, now: float) -> bool:
        if not self._fixed and not self._added:
            return False
        address = parse_address(ip)
        for ban, network in self._fixed:
            if ban.clientid and ban.clientid != client_id:
                continue
            if ban.username and ban.username != username:
                continue
            if network is not None and (address is None or address not in network):
                continue
            return True
        if _is_on(self._added.get(("clientid", client_id), 0.0), now):
            return True
        if username is not None and _is_on(self._added.get(("username", username), 0.0), now):
            return True
        return address is not None and self._refuses_address(address, now)

    def _refuses_address(self, address: Address, now: float) -> bool:
        if not self._networks:
            return False
        width = address.max_prefixlen
        bits = int(address)
        return any(
            _is_on(self._networks.get((width, length, bits >> (width - length)), 0.0), now)
            for length in range(width + 1)
        )

    def _forget_expired(self, now: float) -> None:
        for kind, value, until in self.list():
            if not _is_on(until, now):
                self.remove(kind, value)

    def _canonical(self, kind: BanKind, value: str) -> str:
        if not value:
            raise RefusedError(f"ban of {kind}: the value is empty")
        if kind != "ip":
            return value
        try:
            return str(parse_network(value))
        except ValueError as error:
            raise RefusedError(f"ban of ip {value!r}: {error}") from error


@final
class FailedLogins:
    """Counts failures by user name with address, and by address alone; then bans for a while.

    Loopback addresses are not counted alone: a proxy on this machine speaks for everybody. An IPv6
    address counts as its /64, the least a single customer has. When the table is full, the entry
    which failed longest ago is forgotten.
    """

    __slots__ = ("_entries", "_failures_max", "_window_s")

    def __init__(self, failures_max: int, window_s: float) -> None:
        """`failures_max` within `window_s` bans for `window_s`; 0 in either turns it off."""
        self._failures_max = failures_max if window_s > 0 else 0
        self._window_s = window_s
        self._entries: OrderedDict[FailureKey, FailureCount] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def refuses(self, name: str, ip: str, now: float) -> bool:
        for key, _ in self._keys(name, ip):
            entry = self._entries.get(key)
            if entry is not None and now < entry.banned_until:
                return True
        return False

    def failed(self, name: str, ip: str, now: float) -> None:
        for key, most in self._keys(name, ip):
            entry = self._entries.pop(key, None)
            if entry is None or now - entry.since > self._window_s:
                entry = FailureCount(now)
            entry.count += 1
            if entry.count >= most:
                entry.banned_until = now + self._window_s
                entry.count = 0
                entry.since = now
            self._entries[key] = entry
            if len(self._entries) > FAILED_LOGINS_MAX:
                self._entries.popitem(last=False)

    def succeeded(self, name: str, ip: str) -> None:
        """Forget the failures of this user there; those of the address stay."""
        for key, _ in self._keys(name, ip):
            if key[0] is not None:
                self._entries.pop(key, None)

    def _keys(self, name: str, ip: str) -> list[tuple[FailureKey, int]]:
        """The entries a login counts for, each with the failures it allows."""
        if not self._failures_max:
            return []
        address = parse_address(ip)
        place = ip
        if address is not None:
            place = str(address) if address.version == 4 else f"{int(address) >> 64:x}::/64"
        # The hash of the name, not the name: an entry stays small whatever a client sends.
        keys: list[tuple[FailureKey, int]] = [((hash(name), place), self._failures_max)]
        if address is not None and not address.is_loopback:
            keys.append(((None, place), self._failures_max * ADDRESS_FACTOR))
        return keys


@final
class FailureCount:
    __slots__ = ("banned_until", "count", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.banned_until = 0.0


def _is_on(until: float | None, now: float) -> bool:
    return until is None or now < until


def _network_key(network: Network) -> NetworkKey:
    width = network.max_prefixlen
    return width, network.prefixlen, int(network.network_address) >> (width - network.prefixlen)
