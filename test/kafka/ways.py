"""Options that connect to the broker's listeners, for the tests of this suite."""


def tls(security) -> dict[str, str]:
    return {"security_protocol": "ssl", "ssl_ca_pem": security.ca_pem}


def sasl(security, mechanism: str) -> dict[str, str]:
    return {"security_protocol": "sasl_ssl", "ssl_ca_pem": security.ca_pem, "sasl_mechanism": mechanism}


def sasl_plaintext(_=None) -> dict[str, str]:
    return {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}


def oidc(security) -> dict[str, str]:
    return sasl(security, "OAUTHBEARER") | {
        "sasl_oauthbearer_method": "oidc", "sasl_oauthbearer_client_id": "outbox",
        "sasl_oauthbearer_token_endpoint_url": security.tokens.url}


# ---- user mappings ---------------------------------------------------------------------------------------------

def nothing(_) -> dict[str, str]:
    return {}


def password(security, user: str = "outbox") -> dict[str, str]:
    return {"sasl_username": user, "sasl_password": security.users[user]}


def client_secret(security) -> dict[str, str]:
    return {"sasl_oauthbearer_client_secret": security.tokens.secret}


def client_key(authority, expired: bool = False) -> dict[str, str]:
    issued = authority.issue("client", expired=expired)
    return {"ssl_key_pem": issued.key, "ssl_certificate_pem": issued.certificate}
