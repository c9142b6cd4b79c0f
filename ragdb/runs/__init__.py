"""Runs: what every question left behind, recorded, logged and explained."""
