/* A response that ends early: with a complete 2xx head it is a success whatever its body; an incomplete head is no
 * response. */
#include "authority.h"
#include "webhook_fixture.h"

using namespace outbox;
using Peer = FaultServer::Peer;

namespace {

enum class Then { Closes, Resets, Hangs };

struct Answer {
  std::string bytes;
  Then then;
  Outcome outcome;
};

const std::vector<Answer> &answers() {
  static const auto &all = *new std::vector<Answer>{
      /* The head is complete, the body is not. */
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", Then::Closes, Outcome::Sent},
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", Then::Closes, Outcome::Sent},
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", Then::Hangs, Outcome::Sent},
      {"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", Then::Closes, Outcome::Sent},
      {"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", Then::Closes, Outcome::Sent},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", Then::Hangs, Outcome::Sent},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: ", Then::Closes, Outcome::Sent},
      {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", Then::Closes,
       Outcome::Sent},
      {"HTTP/1.1 204 No Content\r\n\r\n", Then::Closes, Outcome::Sent},
      {"HTTP/1.0 200 OK\r\n\r\nuntil the end", Then::Closes, Outcome::Sent},
      /* The head is incomplete. */
      {"HTTP/1.1 200 OK\r\nContent-Le", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK\r\nContent-Le", Then::Resets, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK\r\nContent-Le", Then::Hangs, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK\r\n", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK\r\nX-A: b\r\n\r", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 100 Continue\r\n\r\n", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 100 Continue\r\n\r\n", Then::Hangs, Outcome::RetryBlameSink},
      {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Le", Then::Closes,
       Outcome::RetryBlameSink},
      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", Then::Closes, Outcome::RetryBlameSink},
      /* A refusal with only its first line does not count: neither as 410. */
      {"HTTP/1.1 410 Gone\r\nContent-Le", Then::Closes, Outcome::RetryBlameSink},
      {"HTTP/1.1 400 Bad Request\r\n", Then::Closes, Outcome::RetryBlameSink},
      /* With a complete head it counts. */
      {"HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\nshort", Then::Closes, Outcome::Retry},
      {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 100\r\n\r\nshort", Then::Hangs, Outcome::Refused},
  };
  return all;
}

void try_each(SSL_CTX *tls, const std::string &ca_pem) {
  Shared<Answer> next;
  FaultServer peer(
      [&](const HttpRequest &, Peer &to) {
        Answer answer = next.get();
        to.send(answer.bytes);
        if (answer.then == Then::Hangs)
          return to.hang();
        linger at_once{1, 0};
        if (answer.then == Then::Resets)
          setsockopt(to.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        return false;
      },
      tls);
  Options options = WebhookHarness::local(peer, {{"timeout", "300ms"}});
  if (!ca_pem.empty())
    options["ssl_ca_pem"] = ca_pem;
  WebhookHarness crm(options);
  uint64_t ticket = 0;
  for (const Answer &answer : answers()) {
    next.set(answer);
    Completion completion = crm.send(TestEvent(++ticket, 1));
    if (completion.outcome == Outcome::Deferred) /* the answer before ended its connection, which was kept */
      completion = crm.send(TestEvent(++ticket, 1));
    EXPECT_EQ(completion.outcome, answer.outcome)
        << answer.bytes << " [" << static_cast<int>(answer.then) << "]: " << completion.error;
    EXPECT_EQ(completion.error.empty(), answer.outcome == Outcome::Sent) << answer.bytes;
    EXPECT_EQ(completion.error.find("No error"), std::string::npos) << completion.error;
  }
  EXPECT_TRUE(crm.reporter->disabled_reason().empty());
}

}  // namespace

TEST(WebhookHead, ACompleteOneOf2xxIsASuccessAndAnIncompleteOneIsNot) {
  try_each(nullptr, {});
}

TEST(WebhookHead, TheSameOverTls) {
  Authority authority("127.0.0.1");
  try_each(authority.context, authority.pem());
}
