#!/usr/bin/env python3
"""Writes vectors.json: requests and how botocore, the AWS SDK for Python, signs them. aws_signature_test.cpp compares.

python3 -m venv build/botocore && build/botocore/bin/pip install botocore
build/botocore/bin/python test/unit/aws_signature/vectors.py
"""

import datetime
import json
import pathlib
import random
from unittest import mock
from urllib.parse import parse_qsl, quote, urlsplit

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SUITE = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")  # of AWS's own test suite
SUITE_TIME = 1440938160  # 2015-08-30T12:36:00Z
TOKEN = "IQoJb3JpZ2luX2VjEA==/+aZ09"
PATHS = [
    "/", "", "/queue/name", "/queue/name/", "/a/./b/../c", "/a/b/..", "/..", "//double//slash/", "/%20blank/%E1%88%B4",
    "/a%2Fb", "/tilde~under_score-dash.dot", "/plus+and:colon@at!", "/topics/arn%3Aaws%3Asns/x", "/.", "/a/.",
]
QUERIES = [
    "", "a=1", "b=2&a=1", "a=2&a=1&a=10", "empty", "empty=&b=1", "k=%2F%3D%20", "A=1&a=1&B=2", "x=a%20b&x=a%2Fb",
    "p=x%3Dy", "%E1%88%B4=bar", "a-b=1&a=1&a.b=2",
]
HEADERS = [
    {}, {"Content-Type": "application/x-amz-json-1.0"}, {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "text/plain"},
    {"My-Header1": "  a   b   c  ", "My-Header2": '"a   b   c"'}, {"ZZ-Last": "\tz\t z", "aa-First": "", "Mm": "ü"},
]
BODIES = [b"", b"{}", b"Action=SendMessage&MessageBody=a+b%20c", "ü€😀".encode(), bytes(range(0, 256, 5)), b"x" * 70]


def sign(case, credentials, presigned):
    url = f"http://{case['host']}{case['path']}" + (f"?{case['query']}" if case["query"] else "")
    request = AWSRequest(case["method"], url, data=bytes.fromhex(case["body"]), headers=case["headers"])
    s3 = case["service"] == "s3"
    if presigned:
        kind = auth.S3SigV4QueryAuth if s3 else auth.SigV4QueryAuth
        signer = kind(credentials, case["service"], case["region"], expires=case["seconds"])
    else:
        signer = (auth.S3SigV4Auth if s3 else auth.SigV4Auth)(credentials, case["service"], case["region"])
    now = datetime.datetime.fromtimestamp(case["time"], datetime.UTC)
    with mock.patch.object(auth, "get_current_datetime", lambda *args, **kwargs: now):
        signer.add_auth(request)
    if presigned:
        parameters = parse_qsl(urlsplit(request.url).query, keep_blank_values=True)
        return {"query": sorted(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in parameters)}
    given = {name.lower() for name in case["headers"]}
    return {"headers": {name.lower(): value for name, value in request.headers.items() if name.lower() not in given}}


def make(number, credentials, presigned=False, **given):
    choose = random.Random(number)
    time = choose.choice([SUITE_TIME, 951782399, 951782400, 0, 1798761599, 4102444800])
    case = {
        "method": choose.choice(["GET", "POST", "PUT"]),
        "host": choose.choice(["example.amazonaws.com", "sqs.eu-central-1.amazonaws.com", "localhost:4566"]),
        "path": choose.choice(PATHS),
        "query": choose.choice(QUERIES),
        "headers": choose.choice(HEADERS),
        "body": choose.choice(BODIES).hex(),
        "region": choose.choice(["us-east-1", "eu-central-1", "cn-north-1"]),
        "service": choose.choice(["service", "sqs", "kinesis", "events", "kafka-cluster"]),
        "time": time,
    } | given
    if case["method"] == "GET":
        case["body"] = ""
    if presigned:  # the signer drops a presigned request's body; no parameter is given twice or is empty
        case |= {"headers": {}, "body": "", "method": "GET", "seconds": choose.choice([60, 900, 604800])}
    case |= {"access_key_id": credentials.access_key, "secret_access_key": credentials.secret_key}
    case |= {"session_token": credentials.token or ""}
    return case | {"signed": sign(case, credentials, presigned)}


def main():
    with_token = Credentials("ASIAEXAMPLE", SUITE.secret_key, TOKEN)
    plain = {"host": "example.amazonaws.com", "region": "us-east-1", "service": "service", "time": SUITE_TIME, "body": ""}
    suite = [
        {"method": "GET", "path": "/", "query": "", "headers": {}},
        {"method": "GET", "path": "/", "query": "Param2=value2&Param1=value1", "headers": {}},
        {"method": "POST", "path": "/", "query": "", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    ]
    cases = [make(0, SUITE, **(plain | given)) for given in suite]
    cases += [make(i, SUITE, path=path) for i, path in enumerate(PATHS)]
    cases += [make(100 + i, with_token, query=query) for i, query in enumerate(QUERIES)]
    cases += [make(200 + i, SUITE, headers=headers, method="POST") for i, headers in enumerate(HEADERS)]
    cases += [make(300 + i, with_token, body=body.hex(), method="PUT") for i, body in enumerate(BODIES)]
    cases += [make(400 + i, with_token, service="s3", path=path or "/") for i, path in enumerate(PATHS)]
    single = [query for query in QUERIES if query.count("a=") < 2 and "x=" not in query and query != "empty"]
    for i, credentials in enumerate([SUITE, with_token]):
        cases += [make(500 + 50 * i + j, credentials, presigned=True, query=query) for j, query in enumerate(single)]
    msk = {"host": "kafka.us-west-2.amazonaws.com", "path": "/", "query": "Action=kafka-cluster%3AConnect", "service": "kafka-cluster"}
    cases += [make(600, credentials, presigned=True, **msk) for credentials in (SUITE, with_token)]
    cases += [make(700, with_token, presigned=True, service="s3", path="/bucket//a/../key%20x", query="versionId=1")]
    file = pathlib.Path(__file__).with_name("vectors.json")
    file.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")
    print(f"{len(cases)} vectors in {file}")


if __name__ == "__main__":
    main()
