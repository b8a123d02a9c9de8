"""Sixty made-up private texts, each of a kind of its own. They are in parts, so that no scanner takes them."""

import base64
import json


def _text(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


_JWT = ".".join((_text({"alg": "HS256"}), _text({"sub": "anna"}), "c2lnbmF0dXJlc2lnbmF0dXJl"))
_KEY_BODY = "MIIBVAIBADANBgkqhkiG9w0BAQEFAASCAT4wggE6AgEAAkEAq7BFUpkGp3LQmlQY"
CANARIES = {
    # Keys of clouds
    "AWS access key": "AKIA" + "Q7ZK3NVX2LMPT5RW",
    "AWS session key": "ASIA" + "Q7ZK3NVX2LMPT5RW",
    "AWS secret key": "aws_secret_access_key=" + "wJalrXUtnFEMIK7MDENGbPxRfiCYzT4vQ8hL2sNd",
    "Google API key": "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "Google client secret": "GOCSPX-" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4",
    "Azure storage key": "AccountKey=" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6" * 2 + "t7U8v9W0x1Y2z3A4b5C6==",
    "Azure client secret": "x7T8Q~" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7",
    "DigitalOcean token": "dop_v1_" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 2,
    "Alibaba access key": "LTAI" + "5tQ7ZK3NVX2LMPT5RWab",
    "Heroku token": "HRKU-AA" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8v9W0x1Y2z3A4b5C6d7E8f9",
    # Tokens
    "GitHub token": "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8",
    "GitLab token": "glpat-" + "9aZ8bY7cX6dW5eV4fU3g",
    "npm token": "npm_" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8",
    "PyPI token": "pypi-AgE" + "IcHlwaS5vcmcCJDk4YzQxZmQ3LTJlM2ItNGE1Yi1hNmM3" * 2,
    "Docker Hub token": "dckr_pat_" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q",
    "Slack token": "xoxb-" + "123456789012-a1B2c3D4e5F6g7H8j9K0",
    "Slack webhook": "https://hooks.slack.com/services/" + "T0A1B2C3D/B4E5F6G7H/a1B2c3D4e5F6g7H8j9K0m1N2",
    "Telegram token": "7123456789:AA" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t",
    "Stripe key": "sk_live_" + "51H8xYz2eZvKYlo2C9mNpQrS",
    "Stripe webhook secret": "whsec_" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6",
    "SendGrid key": "SG." + "a1B2c3D4e5F6g7H8j9K0m1" + "." + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8v9W0x1Y",
    "Mailgun key": "key-" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "Grafana token": "glsa_" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6" + "_0f1e2d3c",
    "New Relic key": "NRAK-" + "Q7ZK3NVX2LMPT5RWQ7ZK3NVX2LM",
    "OpenAI key": "sk-proj-" + "9aZ8bY7cX6dW5eV4fU3gT2hS1i",
    "Anthropic key": "sk-ant-" + "api03-9aZ8bY7cX6dW5eV4fU3gT2hS1i",
    "Hugging Face token": "hf_" + "aBcDeFgHjKmNpQrStUvWxYzAbCdEfGhJkM",
    "Vault token": "hvs." + "CAESIa1B2c3D4e5F6g7H8j9K0m1N2",
    "Tailscale key": "tskey-auth-" + "kQ7ZK3NVX2LM-" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6",
    "Shopify token": "shpat_" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "Postman key": "PMAK-" + "0f1e2d3c4b5a69788796a5b4" + "-" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0ab",
    "Databricks token": "dapi" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "Linear key": "lin_api_" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8v9W0",
    "JSON web token": _JWT,
    # Passwords, cookies and keys
    "password in a URL": "postgres://app:" + "Tr0ub4dor3x@db.internal.corp.io/x",
    "password by name": "password=" + "S3cr3tPw9rdX7q",
    "API key by name": "api_key=" + "a8f5f167f44f4964e6c998dee827110c",
    "bearer credential": "Authorization: bearer " + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4",
    "basic credential": "basic " + base64.b64encode(b"robot:K2mZ8vRt6yHp").decode(),
    "cookie": "session_token=" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4",
    "password hash": "app:$apr1$" + "twRiNTV2$x67rKyKRyWqjYLRWNSyGLu",
    "private key": f"-----BEGIN PRIVATE KEY-----\\n{_KEY_BODY}\\n-----END PRIVATE KEY-----",
    "age key": "AGE-SECRET-KEY-1" + "0PJ7MTERAQBY9YY74L5O6PB8AEFUUF63MLI0A9U01ZB8VA7UH54T3CWD1D",
    "WireGuard key": "PrivateKey=" + "a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S6t7U8v9W0x1Y=",
    # Persons
    "mail address": "anna.schmidt@firma-weber.de",
    "mail address with a plus": "mwangi+x@kampala.co.ug",
    "card": "4539148803436467",
    "card in groups": "5425-2334-3010-9903",
    "IBAN": "GB94BARC10201530093459",
    "IBAN of France": "FR5530006000011234567890179",
    "social security number (US)": "536-22-8471",
    "tax id (Brazil)": "529.982.247-25",
    "tax code (Italy)": "RSSMRA85T10A562S",
    "social security number (France)": "291055536645462",
    "national id (Finland)": "150867-1431",
    "national id (Poland)": "pesel:04059502438",
    "national id (Netherlands)": "bsn:394649059",
    "social security number (Switzerland)": "ahv:756.9327.7774.37",
    "phone": "+491705554321",
    "phone (US)": "212-664-7665",
}  # fmt: skip
