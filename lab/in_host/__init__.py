"""Programs that run inside a lab host, on its own Python: they import nothing of the lab, packages carry them in."""
