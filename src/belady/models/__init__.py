"""Networks, the sources their weights come from, and the one description both agree on."""
