/*
 * aws_signature.h: AWS Signature Version 4, as headers of a request or as the query of a presigned URL. Pure
 * functions: no state, no clock, any thread. A signature is valid for about five minutes around its time (a presigned
 * one for `seconds`), so sign each attempt anew.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::aws {

/* An empty session_token: the keys of a user, which do not expire. */
struct Credentials {
  std::string access_key_id, secret_access_key, session_token;
};

/* A signature is valid for one region and one service: "eu-central-1" and "sqs". */
struct Scope {
  std::string_view region, service;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string_view method = "POST";
  std::string_view host;       /* as in the Host header: with the port if it is not the scheme's default */
  std::string_view path = "/"; /* as in the URL, percent-encoded */
  std::string_view query = {}; /* as in the URL, percent-encoded ("%20" for a blank, never "+"), without "?" */
  Headers headers = {};        /* all are signed: leave out those that a proxy changes, and "Host" */
  std::string_view body = {};
};

/* The headers to add to the request: x-amz-date, x-amz-security-token with a session token, x-amz-content-sha256 for
 * service "s3", and authorization. */
Headers sign(const Request &request, const Scope &scope, const Credentials &credentials, int64_t unix_seconds);

/* The query of a URL that needs no headers besides Host for `seconds` from `unix_seconds` on: the request's own
 * query, then the parameters of the signature. The request has no headers. */
std::string presign(const Request &request, const Scope &scope, const Credentials &credentials, int64_t unix_seconds,
                    int64_t seconds);

/* Appends the text with "%2F" for each byte that is not unreserved in RFC 3986: for the query and a segment of the
 * path. */
void append_uri_encoded(std::string_view text, std::string &out);

}  // namespace outbox::aws
