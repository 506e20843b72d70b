"""What was measured between pairs of nodes, and which machine is to blame for it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from console.doctor.probe_helpers import WITHOUT_ROOT, Found, Skipped, bootstrap, explained, listed, need, no_load
from console.doctor.readings_and_findings import Facts, Finding, NodeReadings, Readings
from plugins.module_utils.motley.blocking_rules import Rule
from plugins.module_utils.motley.ping import Closed

ALONE = "; the ports of runs were not tried"
SLOW_SHARE = 0.5
GIGABIT = 1000
FAR_MS, UNEVEN_MS, LOST_PERCENT = 8.0, 5.0, 3.0

Pair = tuple[str, str]


def pairs(readings: Readings) -> dict[Pair, Facts]:
    """(one, other) in the nodes' order → what the one that began has measured, as far as it was."""
    order = [node.name for node in readings.nodes]
    measured: dict[Pair, Facts] = {}
    for node in readings.nodes:
        for peer, link in (node.links or {}).items():
            if peer in order and order.index(node.name) < order.index(peer):
                measured[node.name, peer] = link
    return measured


def blame(bad: Iterable[Pair], good: Iterable[Pair]) -> tuple[list[str], list[Pair]]:
    """Nodes of which every measured pair is bad, where somebody else's is good or they are in most; and the pairs left.

    With two nodes nobody knows which of them it is: the pair stays a pair.
    """
    left, healthy = list(bad), list(good)
    guilty: list[str] = []
    while left:
        counts = Counter(name for pair in left for name in pair)
        suspects = [name for name, count in counts.items() if count > 1 and not any(name in pair for pair in healthy)]
        most = max((counts[name] for name in suspects), default=0)
        worst = [name for name in suspects if counts[name] == most]
        if len(worst) != 1:
            break
        guilty.append(worst[0])
        left = [pair for pair in left if worst[0] not in pair]
    return guilty, left


def ports(readings: Readings) -> Found:
    tried = [node for node in readings.nodes if node.links is not None or node.link_failed]
    if len(tried) < 2:
        raise Skipped("it needs two nodes")
    wrong = [explained("ports", node.name, node.link_failed) for node in tried if node.link_failed]
    mute = {node.name for node in tried if node.link_failed}
    known = {node.name: node for node in tried}
    shut: dict[str, dict[str, str]] = {}
    for node in tried:
        for peer, link in (node.links or {}).items():
            if link.get("reached") and peer not in mute:
                shut.setdefault(peer, {})[node.name] = str(link["reached"])
    partly = _partly_shut(readings)
    routes = sum(len(node.links or {}) for node in tried)
    for name, callers in shut.items():
        how = listed(list(callers.values()))
        called = known[name]
        rule = _rule(called, [], "input")
        what = f"training ports there are closed to {listed(list(callers))} ({how})" + _named(rule)
        if _is_firewalld(rule):
            fixed = _by_firewalld(called, [known[caller].address for caller in callers])
        else:
            other = "sudo nft list ruleset there, or a router that isolates Wi-Fi"
            fixed = {"fix": f"{bootstrap('firewall', name)}; else {other}", "phase": "firewall", "safe": True}
        wrong.append(Finding(node=name, what=what, **fixed))
    wrong += _closed(readings, partly)
    bad = sum(map(len, shut.values())) + len(partly)
    alone = "" if any(_shut(link) is not None for node in tried for link in (node.links or {}).values()) else ALONE
    return f"{routes - bad} of {routes} routes between nodes are open{alone}", wrong


def _shut(link: Facts) -> list[Closed] | None:
    """[first, last, why] of what is closed, of the ports of runs; None where they were not tried."""
    found: list[Closed] | None = link.get("shut")
    return found


def _partly_shut(readings: Readings) -> list[tuple[NodeReadings, NodeReadings, list[Closed]]]:
    """Caller, who was called, and what is closed between them."""
    known = {node.name: node for node in readings.nodes}
    return [
        (node, known[peer], closed)
        for node in readings.nodes
        for peer, link in (node.links or {}).items()
        if peer in known and (closed := _shut(link))
    ]


def _closed(readings: Readings, partly: list[tuple[NodeReadings, NodeReadings, list[Closed]]]) -> list[Finding]:
    """One finding for each machine whose rule it is: the called one's, or the caller's own where only that is known."""
    theirs: dict[tuple[str, bool], list[tuple[NodeReadings, list[Closed]]]] = {}
    for caller, called, closed in partly:
        outgoing = not _rule(called, closed, "input") and bool(_rule(caller, closed, "output"))
        owner, other = (caller, called) if outgoing else (called, caller)
        theirs.setdefault((owner.name, outgoing), []).append((other, closed))
    findings = []
    for node in readings.nodes:
        for outgoing in (False, True):
            if others := theirs.get((node.name, outgoing)):
                closed = [part for _, parts in others for part in parts]
                ports = listed([f"{low}–{high}" if low < high else str(low) for low, high, _ in sorted(closed)])
                who, how = listed([other.name for other, _ in others]), listed([str(why) for *_, why in closed])
                what = f"it cannot call ports {ports} of" if outgoing else f"ports {ports} are closed there to"
                rule = _rule(node, closed, "output" if outgoing else "input")
                what += f" {who} ({how}), which runs use{_named(rule)}"
                fixed: Facts = {"fix": "on it: admit the nodes before that rule, or remove it: sudo nft list ruleset"}
                if _is_firewalld(rule) and not outgoing:
                    fixed = _by_firewalld(node, [other.address for other, _ in others])
                findings.append(Finding(node=node.name, what=what, **fixed))
    return findings


def _rule(node: NodeReadings, closed: list[Closed], hook: str) -> Rule | None:
    """The first of its owner's rules that names such a port, else a chain that drops whatever no rule lets in."""
    rules: list[Rule] = [rule for rule in node.part("rules") or [] if rule["hook"] in (hook, "")]
    naming = [
        rule
        for rule in rules
        if any(low <= last and first <= high for low, high in rule["ports"] for first, last, _ in closed)
    ]
    return next(iter(naming), None) or next((rule for rule in rules if not rule["ports"]), None)


def _named(rule: Rule | None) -> str:
    return f": {rule['rule']} (chain {rule['chain']})" if rule else ""


def _is_firewalld(rule: Rule | None) -> bool:
    return rule is not None and rule["chain"].startswith("inet firewalld ")


def _by_firewalld(node: NodeReadings, callers: list[str]) -> Facts:
    """The fix with firewalld, whose rules are its own to change: by hand, whoever is let in is let in to everything."""
    sources = " ".join(f"--add-source={address}" for address in dict.fromkeys(callers))
    by_hand = f"on it: sudo firewall-cmd --permanent --zone=trusted {sources}; sudo firewall-cmd --reload"
    if not node.expected.get("firewall"):
        return {"fix": by_hand}
    return {"fix": f"{bootstrap('firewall', node.name)}; else {by_hand}", "phase": "firewall", "safe": True}


def _measured(readings: Readings, key: str) -> dict[Pair, float]:
    values = {pair: facts[key] for pair, facts in pairs(readings).items() if facts.get(key) is not None}
    if not values:
        missing = any("rtt_ms" in facts for facts in pairs(readings).values())
        raise Skipped(WITHOUT_ROOT if missing and key != "mbit_to" else "no pair of nodes was measured")
    return values


def _blamed(probe: str, bad: dict[Pair, str], good: list[Pair], words: str, fix: str) -> list[Finding]:
    guilty, left = blame(bad, good)
    findings = []
    for name in guilty:
        values = listed(
            [f"{value} to {other}" for pair, value in bad.items() for other in pair if name in pair and other != name]
        )
        findings.append(Finding(probe=probe, node=name, what=f"{words}: {values}", fix=fix))
    for one, other in left:
        what = f"{words} between {one} and {other}: {bad[one, other]}"
        findings.append(Finding(probe=probe, node=one, what=what, fix=fix))
    return findings


def trips(readings: Readings) -> Found:
    times, measured = _measured(readings, "loss_percent"), pairs(readings).values()
    lost, late, uneven, good = {}, {}, {}, []
    for pair in times:
        facts = pairs(readings)[pair]
        rtt, jitter, loss = facts["rtt_ms"], facts["jitter_ms"] or 0.0, facts["loss_percent"]
        if loss >= LOST_PERCENT:
            lost[pair] = f"{loss:.0f} %"
        elif rtt is not None and rtt > FAR_MS:
            late[pair] = f"{rtt:.0f} ms"
        elif jitter > UNEVEN_MS:
            uneven[pair] = f"{jitter:.0f} ms"
        else:
            good.append(pair)
    fix = "cable and switch port of that machine; on Wi-Fi: a cable"
    wrong = _blamed("loss", lost, good, "packets are lost", fix)
    wrong += _blamed("round trip", late, good, "packets are late, there and back", fix)
    wrong += _blamed("round trip", uneven, good, "packets come unevenly", fix)
    round_trips_ms = [facts["rtt_ms"] for facts in measured if facts.get("rtt_ms") is not None]
    seen = f"{min(round_trips_ms):.1f}–{max(round_trips_ms):.1f} ms" if round_trips_ms else "no answer"
    jitters = [facts["jitter_ms"] for facts in measured if facts.get("jitter_ms") is not None]
    uneven_by = f", uneven by {max(jitters):.1f} ms" if jitters else ""
    return f"{seen}{uneven_by}, {max(times.values()):.0f} % lost", wrong


def throughput(readings: Readings) -> Found:
    no_load(readings)
    _measured(readings, "mbit_to")
    claimed = _claims(readings)
    slow, good, seen = {}, [], []
    for pair, facts in pairs(readings).items():
        if facts.get("mbit_to") is None or facts.get("mbit_from") is None:
            continue
        mbit = min(facts["mbit_to"], facts["mbit_from"])
        seen.append(mbit)
        if (facts.get("rtt_ms") or 0) > FAR_MS or (facts.get("loss_percent") or 0) >= LOST_PERCENT:
            continue  # late or lost packets make it slow: those are the cause
        promised = min(GIGABIT, *(claimed.get(name, 0) for name in pair))  # 0: Wi-Fi promises nothing
        if mbit < SLOW_SHARE * promised:
            slow[pair] = f"{mbit:.0f} Mbit/s"
        else:
            good.append(pair)
    words = "data moves far slower than its network card should"
    wrong = _blamed(
        "throughput", slow, good, words, "another cable or switch port; on it: sudo ethtool CARD; is it busy?"
    )
    return f"{min(seen):.0f}–{max(seen):.0f} Mbit/s, pair by pair", wrong


def _claims(readings: Readings) -> dict[str, int]:
    claims = {}
    for node in readings.looked_at:
        facts = node.part("network") or {"nic": "", "links": []}
        nic = next((link for link in facts["links"] if link["name"] == facts["nic"]), {"mbit": 0, "wireless": False})
        claims[node.name] = 0 if nic["wireless"] else int(nic["mbit"])
    return claims


def packets(readings: Readings) -> Found:
    """Full-size packets with "do not fragment", both ways."""
    sizes = {
        node.name: int(link["mtu"])
        for node, facts in need(readings, "network")
        for link in facts["links"]
        if link["name"] == facts["nic"]
    }
    usual = Counter(sizes.values()).most_common(1)[0][0] if sizes else 0
    odd = {name for name, size in sizes.items() if size != usual}
    wrong = [_other_size(name, sizes[name], usual) for name in sizes if name in odd]
    bad: dict[Pair, str] = {}
    tried: set[Pair] = set()
    order = [node.name for node in readings.nodes]
    for node in readings.nodes:
        for peer, facts in (node.links or {}).items():
            pair = (node.name, peer) if order.index(node.name) < order.index(peer) else (peer, node.name)
            if facts.get("full_packets") is None:
                continue
            tried.add(pair)
            if not facts["full_packets"] and not odd & set(pair):
                bad[pair] = f"{sizes.get(node.name, usual)} bytes"
    if not tried:
        pinged = any("full_packets" in facts for facts in pairs(readings).values())
        raise Skipped(WITHOUT_ROOT if pinged else "no pair of nodes was measured")
    fix = "a switch, tunnel or Wi-Fi between them takes smaller packets: set that size as mtu on all nodes"
    wrong += _blamed("packets", bad, [pair for pair in tried if pair not in bad], "full packets do not arrive", fix)
    return f"packets of {usual} bytes pass unbroken on {len(tried) - len(bad)} of {len(tried)} links", wrong


def _other_size(name: str, size: int, usual: int) -> Finding:
    what = f"its network interface takes packets of {size} bytes, the others' {usual}: big ones are lost between them"
    return Finding(node=name, what=what, fix=f"on it: sudo ip link set CARD mtu {usual}")
