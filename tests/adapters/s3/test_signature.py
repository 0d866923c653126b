"""The signature of requests: the examples that Amazon publishes."""

from datetime import UTC, datetime

import pytest

from gnomon.adapters.s3.signature import S3Credentials, encoded_path, encoded_query, signed_headers

#: The credentials, the time and the signatures of the examples in the reference of Amazon S3.
CREDENTIALS = S3Credentials(key_id="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")  # noqa: S106 - published
AT = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ({"lifecycle": ""}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ({"prefix": "J", "max-keys": "2"}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_the_published_examples_are_signed_as_published(query: dict[str, str], signature: str) -> None:
    headers = signed_headers(
        CREDENTIALS,
        method="GET",
        host="examplebucket.s3.amazonaws.com",
        path=encoded_path("/"),
        query=encoded_query(query),
        body=b"",
        region="us-east-1",
        at=AT,
    )

    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        f"SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature={signature}"
    )


def test_everything_but_letters_digits_and_four_signs_is_escaped() -> None:
    assert encoded_path("/a b/ü+~_.-(1)") == "/a%20b/%C3%BC%2B~_.-%281%29"
    assert encoded_query({"b": "/+= &", "a": ""}) == "a=&b=%2F%2B%3D%20%26"


def test_credentials_are_not_printed() -> None:
    assert "EXAMPLE" not in repr(CREDENTIALS)
