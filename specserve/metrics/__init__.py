"""The engine's work added up: totals and log lines (`stats`), Prometheus series (`table`, `prometheus`)."""
