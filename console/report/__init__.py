"""The report of a run: story.py reads what happened, charts.py draws, page.py makes the one HTML file."""
