"""`evenbins demo`: steps.py shows and claims, report.py writes the page, figures.py draws."""
