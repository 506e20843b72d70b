"""The report of a run: story.py reads what happened, svg_charts.py draws, page.py makes the one HTML file."""
