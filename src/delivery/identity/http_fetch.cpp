/*
 * http_fetch.cpp: libcurl on the caller's thread, with a handle that is used once: so the network guard sees each
 * connection when it is opened, and none is left open between two renewals.
 */
#include "delivery/identity/http_fetch.h"

#include <filesystem>
#include <memory>
#include <optional>

#include <sys/socket.h>

#include <curl/curl.h>

#include "delivery/http/http_loop.h"
#include "delivery/http/tls_diagnosis.h"

namespace outbox {
namespace {

constexpr size_t max_body = 256 * 1024;
constexpr size_t max_headers = 64 * 1024; /* libcurl keeps all headers */
constexpr int slice_ms = 50;

struct Cleanup {
  void operator()(CURL *easy) const { curl_easy_cleanup(easy); }
  void operator()(curl_slist *list) const { curl_slist_free_all(list); }
};
struct MultiCleanup {
  void operator()(CURLM *multi) const { curl_multi_cleanup(multi); }
};

class Transfer {
public:
  explicit Transfer(const HttpFetch &what) : what_(what), multi_(open_multi()), easy_(curl_easy_init()) {
    if (!multi_ || !easy_)
      throw std::bad_alloc();
    set_options();
  }
  ~Transfer() { curl_multi_remove_handle(multi_.get(), easy_.get()); }
  Transfer(const Transfer &) = delete;
  Transfer &operator=(const Transfer &) = delete;

  HttpFetched run(const Stop &stop) {
    CURLcode code = perform(stop);
    if (refusal_ && code != CURLE_OK)
      throw NotGranted((allowed_one_ ? why(code) + ". " : std::string()) + "the url's host has an address that " +
                       refusal_->reason + ": if it is meant, a superuser adds " + refusal_->network +
                       " to the server's option allow_networks");
    if (out_of_memory_)
      throw std::bad_alloc();
    if (header_bytes_ > max_headers || body_is_too_long_)
      throw NotGranted(body_is_too_long_
                           ? "its answer has more than " + std::to_string(max_body) + " bytes"
                           : "the headers of its answer have more than " + std::to_string(max_headers) + " bytes");
    if (code != CURLE_OK)
      throw NotGranted(why(code));
    HttpFetched fetched;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &fetched.status);
    fetched.body = std::move(body_);
    return fetched;
  }

private:
  template <typename Value> void set(CURLoption option, Value value) {
    if (CURLcode code = curl_easy_setopt(easy_.get(), option, value); code != CURLE_OK)
      throw std::runtime_error(std::string("libcurl refused an option: ") + curl_easy_strerror(code));
  }

  void set_options() {
    set(CURLOPT_URL, what_.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_PROXY, "");
    set(CURLOPT_NOPROXY, "*");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L); /* the thread must end although a resolver hangs */
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(what_.timeout.count()));
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(what_.connect_timeout.count()));
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_OPENSOCKETFUNCTION, &Transfer::open_socket);
    set(CURLOPT_OPENSOCKETDATA, this);
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, this);
    if (what_.method != "GET") {
      set(CURLOPT_POST, 1L);
      set(CURLOPT_CUSTOMREQUEST, what_.method.c_str());
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(what_.body.size()));
      set(CURLOPT_POSTFIELDS, what_.body.data());
    }
    for (const auto &[name, value] : what_.headers) {
      curl_slist *longer = curl_slist_append(headers_.get(), (name + ": " + value).c_str());
      if (!longer)
        throw std::bad_alloc();
      (void)headers_.release();
      headers_.reset(longer);
    }
    set(CURLOPT_HTTPHEADER, headers_.get());
    set_authorities();
    tls_.attach(easy_.get());
  }

  void set_authorities() {
    if (!what_.ca_pem.empty()) {
      curl_blob blob{const_cast<char *>(what_.ca_pem.data()), what_.ca_pem.size(), CURL_BLOB_NOCOPY};
      set(CURLOPT_CAINFO_BLOB, &blob);
      set(CURLOPT_CAPATH, static_cast<char *>(nullptr)); /* only these, not the system's too */
    } else if (!what_.ca_path.empty()) {
      std::error_code ignored;
      bool folder = std::filesystem::is_directory(what_.ca_path, ignored);
      set(CURLOPT_CAINFO, folder ? nullptr : what_.ca_path.c_str());
      set(CURLOPT_CAPATH, folder ? what_.ca_path.c_str() : nullptr);
    }
  }

  CURLcode perform(const Stop &stop) {
    if (CURLMcode code = curl_multi_add_handle(multi_.get(), easy_.get()); code != CURLM_OK)
      throw std::runtime_error(curl_multi_strerror(code));
    for (int running = 1; running > 0;) {
      if (stop())
        throw NotGranted("it did not answer in time");
      if (curl_multi_perform(multi_.get(), &running) != CURLM_OK)
        break;
      if (running > 0)
        curl_multi_poll(multi_.get(), nullptr, 0, slice_ms, nullptr);
    }
    int left = 0;
    while (CURLMsg *message = curl_multi_info_read(multi_.get(), &left))
      if (message->msg == CURLMSG_DONE)
        return message->data.result;
    return CURLE_OPERATION_TIMEDOUT;
  }

  std::string why(CURLcode code) {
    std::string text = error_[0] ? error_ : curl_easy_strerror(code);
    if (auto problem = tls_.explain(code, text, false))
      return problem->text();
    return text;
  }

  static curl_socket_t open_socket(void *self_, curlsocktype, curl_sockaddr *address) {
    auto *self = static_cast<Transfer *>(self_);
    try {
      if (self->what_.guard)
        if (auto refusal = self->what_.guard->check(&address->addr)) {
          const std::string before =
              self->refusal_ ? self->refusal_->network : ""; /* the name has several addresses */
          if ((", " + before + ",").find(", " + refusal->network + ",") != std::string::npos)
            refusal->network = before;
          else if (!before.empty())
            refusal->network = before + ", " + refusal->network;
          self->refusal_ = std::move(refusal);
          return CURL_SOCKET_BAD;
        }
      self->allowed_one_ = true;
    } catch (...) {
      self->out_of_memory_ = true;
      return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  static size_t on_header(char *, size_t size, size_t n, void *self_) {
    auto *self = static_cast<Transfer *>(self_);
    self->header_bytes_ += size * n;
    return self->header_bytes_ > max_headers ? 0 : size * n;
  }

  static size_t on_body(char *data, size_t size, size_t n, void *self_) {
    auto *self = static_cast<Transfer *>(self_);
    if (self->body_.size() + size * n > max_body) {
      self->body_is_too_long_ = true;
      return 0;
    }
    try {
      self->body_.append(data, size * n);
    } catch (const std::bad_alloc &) {
      self->out_of_memory_ = true;
      return 0;
    }
    return size * n;
  }

  const HttpFetch &what_;
  std::string body_;
  size_t header_bytes_ = 0;
  bool body_is_too_long_ = false;
  std::optional<Refusal> refusal_; /* with the networks of all addresses that were refused */
  bool allowed_one_ = false;       /* another address of the same name was tried */
  bool out_of_memory_ = false;
  TlsDiagnosis tls_;
  char error_[CURL_ERROR_SIZE] = "";
  std::unique_ptr<curl_slist, Cleanup> headers_;
  std::unique_ptr<CURLM, MultiCleanup> multi_;
  std::unique_ptr<CURL, Cleanup> easy_; /* last member: it points to the others */
};

}  // namespace

HttpFetched fetch(const HttpFetch &what, const Stop &stop) {
  init_libcurl();
  return Transfer(what).run(stop);
}

}  // namespace outbox
