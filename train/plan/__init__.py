"""What will run where, and whether it can: settings, catalogue, memory, shares, speed-up. Imports no torch."""
