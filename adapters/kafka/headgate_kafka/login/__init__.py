"""How clients log in: SASL, tokens, certificates and key stores, from Java's properties."""
