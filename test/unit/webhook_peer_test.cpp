/* A peer that violates HTTP: time and memory are bounded, and its bytes are never taken for the response to another
 * request. */
#include "webhook_fixture.h"
#include "patience.h"

#include <filesystem>

#include <sys/resource.h>

using namespace outbox;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Peer = FaultServer::Peer;

namespace {

/* The kernel accepts the connection, and no program reads from it. */
struct DeafPort : DeadPort {
  DeafPort() {
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (listen(fd, 8) != 0)
      throw std::runtime_error("cannot listen");
  }
};

/* As many descriptors as are open now, and `free` more. */
class NoMoreFiles {
public:
  explicit NoMoreFiles(rlim_t free = 0) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlim_t highest = 4 * free; /* the last quarter of the descriptors is for the server */
    for (auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
      highest = std::max<rlim_t>(highest, std::stoul(entry.path().filename()));
    while (true) {  // the gaps below it
      int fd = dup(0);
      fill_.push_back(fd);
      if (static_cast<rlim_t>(fd) > highest)
        break;
    }
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(fill_.back()) + 1 + free;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() {
    setrlimit(RLIMIT_NOFILE, &before_);
    for (int fd : fill_)
      close(fd);
  }

private:
  rlimit before_;
  std::vector<int> fill_;
};

}  // namespace

TEST(WebhookPeer, OneThatNeverReadsTakesItsTimeoutAndNobodyElsesTime) {
  DeafPort deaf;
  FaultServer well([](const HttpRequest &, Peer &to) { return to.answer(200); });
  WebhookHarness crm(WebhookHarness::local(deaf.url, {{"timeout", "500ms"}}));
  WebhookHarness other(WebhookHarness::local(well));
  auto begin = Clock::now();
  crm.submit(TestEvent(1, 1, "\"" + std::string(10 << 20, 'x') + "\""));
  crm.sink->flush();
  for (uint64_t n = 1; n <= 50; ++n)
    EXPECT_EQ(other.send(TestEvent(n, 1)).outcome, Outcome::Sent);
  EXPECT_EQ(crm.wait(1).at(0).outcome, Outcome::RetryBlameSink);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
}

/* Response splitting: bytes after a response, sent at once or on an idle connection, are no response. */
TEST(WebhookPeer, SurplusAnswersAreNotTakenForTheNext) {
  for (milliseconds later : {milliseconds(0), milliseconds(30)}) {
    std::atomic<int> surplus{0};
    FaultServer peer([&](const HttpRequest &, Peer &to) {
      std::string stale = "HTTP/1.1 500 Stale\r\nContent-Length: 5\r\n\r\nstale";
      std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
      if (later.count() == 0)
        return to.send(answer + stale);
      to.send(answer);
      std::this_thread::sleep_for(later);
      bool kept = to.send(stale);
      ++surplus;
      return kept;
    });
    WebhookHarness crm(WebhookHarness::local(peer));
    for (int n = 1; n <= 5; ++n) {
      Completion completion = crm.send(TestEvent(static_cast<uint64_t>(n), 1));
      ASSERT_EQ(completion.outcome, Outcome::Sent) << completion.error;
      while (later.count() > 0 && surplus < n)
        std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(peer.requests(), 5);
  }
}

/* Responses before the request was read: a refusal, with the connection kept or closed, and a success. */
TEST(WebhookPeer, AnAnswerBeforeTheBodyIsSentIsTheAnswer) {
  enum class Then { Reads, Leaves };
  for (auto [status, then] : {std::pair(413, Then::Reads), {413, Then::Leaves}, {200, Then::Reads}}) {
    DeadPort port;
    ASSERT_EQ(listen(port.fd, 8), 0);
    std::atomic<int> connections{0};
    std::thread server([&, status = status, then = then] {
      for (int fd; (fd = accept(port.fd, nullptr, nullptr)) >= 0; close(fd)) {
        char buffer[65536];
        long n = recv(fd, buffer, 4096, 0);  // the header, and little of the body
        Peer peer{fd, nullptr};
        peer.answer(connections++ == 0 ? status : 204, {}, "so soon");
        if (connections == 1 && then == Then::Leaves)
          std::this_thread::sleep_for(milliseconds(200));
        else
          while (n > 0)
            n = recv(fd, buffer, sizeof(buffer), 0);
      }
    });
    {
      WebhookHarness crm(WebhookHarness::local(port.url, {{"timeout", "5s"}}));
      Completion first = crm.send(TestEvent(1, 1, "\"" + std::string(8 << 20, 'x') + "\""));
      EXPECT_EQ(first.outcome == Outcome::Sent, status == 200) << first.error;
      EXPECT_EQ(first.error.find("HTTP 413") != std::string::npos, status == 413) << first.error;
    }
    shutdown(port.fd, SHUT_RDWR);
    server.join();
  }
}

TEST(WebhookPeer, FloodsAreCutOff) {
  for (auto [head, piece] :
       {std::pair<std::string, std::string>{"", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
        {"", "HTTP/1.1 100 Continue\r\n\r\n"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-Trailer: x\r\n"},
        {"HTTP/1.1 200 OK\r\nX-Long: ", std::string(1000, 'x')},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"}}) {
    FaultServer peer([head = head, piece = piece](const HttpRequest &, Peer &to) {
      std::string many;
      while (many.size() < 65536)
        many += piece;
      for (to.send(head); to.send(many);)
        ;
      return false;
    });
    WebhookHarness crm(WebhookHarness::local(peer, {{"timeout", "5min"}}));
    auto begin = Clock::now();
    Completion completion = crm.send(TestEvent(1, 1));
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60)) << piece.substr(0, 30);
    bool has_head = head.find("\r\n\r\n") != head.npos;
    EXPECT_EQ(completion.outcome, has_head ? Outcome::Sent : Outcome::RetryBlameSink) << piece.substr(0, 30);
  }
}

TEST(WebhookPeer, TrailersAreNoHarm) {
  FaultServer peer([](const HttpRequest &, Peer &to) {
    return to.send(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n");
  });
  WebhookHarness crm(WebhookHarness::local(peer));
  for (uint64_t n = 1; n <= 3; ++n)
    EXPECT_EQ(crm.send(TestEvent(n, 1)).outcome, Outcome::Sent);
  EXPECT_EQ(peer.connections(), 1);
}

/* The last descriptors are the server's, also when other libraries have the others. */
TEST(WebhookPeer, ALackOfFilesIsNotItsFault) {
  FaultServer peer([](const HttpRequest &, Peer &to) { return to.answer(200); });
  WebhookHarness crm(WebhookHarness::local(peer));
  for (rlim_t free : {0, 40}) {
    NoMoreFiles none(free);
    Completion completion = crm.send(TestEvent(1, 1));
    EXPECT_EQ(completion.outcome, Outcome::Returned) << "no attempt is counted, the circuit stays closed";
    EXPECT_NE(completion.error.find("too many files"), std::string::npos) << completion.error;
    EXPECT_EQ(crm.sink->credit(), 0u);
    EXPECT_GT(crm.sink->credit_at(), Clock::now()) << "it is tried again, but not at once";
    auto end = patience_ends(std::chrono::seconds(20));
    while (crm.sink->credit() == 0 && Clock::now() < end)
      std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(crm.send(TestEvent(1, 1)).outcome, Outcome::Sent);
}
