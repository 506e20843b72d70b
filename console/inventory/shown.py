"""./motley check: the machines of an inventory that has nothing to fix."""

from __future__ import annotations

from console.inventory.read import Inventory


def show(inventory: Inventory) -> int:
    width = max(map(len, inventory.nodes))
    for place, (name, values) in enumerate(inventory.nodes.items()):
        card = values.get("motley_gpu", "")
        at = values.get("motley_address") or values.get("ansible_host", "")
        print(f"  {name:<{width}}  {at:<15}  {card:<14}  {'head' if place == 0 else ''}".rstrip())
    for note in inventory.notes:
        print(f"  · {note}")
    print("the inventory is good")
    return 0
