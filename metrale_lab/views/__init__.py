"""Pictures and live panels of a lab."""
