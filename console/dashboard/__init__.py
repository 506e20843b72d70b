"""./motley dashboard: the report page while it is not finished yet, in a browser."""
