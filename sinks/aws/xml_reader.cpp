/* xml_reader.cpp: exceptions must not pass through Expat, which is C: a callback keeps them for its caller. */
#include "xml_reader.h"

#include <expat.h>

#include <exception>
#include <memory>
#include <new>

namespace outbox::aws_sink {
namespace {

class Reading {
public:
  using OnElement = std::function<void(const XmlPath &, const std::string &, bool)>;

  explicit Reading(const OnElement &on_element)
      : on_element_(on_element), parser_(XML_ParserCreate(nullptr), &XML_ParserFree) {
    if (!parser_)
      throw std::bad_alloc();
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &Reading::begins, &Reading::ends);
    XML_SetCharacterDataHandler(parser_.get(), &Reading::text);
    XML_SetStartDoctypeDeclHandler(parser_.get(), &Reading::doctype);
  }

  bool read(const std::string &document) {
    XML_Status status = XML_Parse(parser_.get(), document.data(), static_cast<int>(document.size()), 1);
    if (thrown_)
      std::rethrow_exception(thrown_);
    if (status != XML_STATUS_OK && XML_GetErrorCode(parser_.get()) == XML_ERROR_NO_MEMORY)
      throw std::bad_alloc();
    return status == XML_STATUS_OK;
  }

private:
  template <class Function> void guarded(Function function) noexcept {
    if (thrown_)
      return;
    try {
      function();
    } catch (...) {
      thrown_ = std::current_exception();
      XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  static void begins(void *self, const XML_Char *name, const XML_Char **) noexcept {
    auto *reading = static_cast<Reading *>(self);
    reading->guarded([&] {
      reading->path_.emplace_back(name);
      reading->text_.clear();
      reading->on_element_(reading->path_, reading->text_, false);
    });
  }
  static void ends(void *self, const XML_Char *) noexcept {
    auto *reading = static_cast<Reading *>(self);
    reading->guarded([&] {
      reading->on_element_(reading->path_, reading->text_, true);
      reading->path_.pop_back();
      reading->text_.clear();
    });
  }
  static void text(void *self, const XML_Char *text, int length) noexcept {
    auto *reading = static_cast<Reading *>(self);
    reading->guarded([&] { reading->text_.append(text, static_cast<size_t>(length)); });
  }
  static void doctype(void *self, const XML_Char *, const XML_Char *, const XML_Char *, int) noexcept {
    XML_StopParser(static_cast<Reading *>(self)->parser_.get(), XML_FALSE);
  }

  const OnElement &on_element_;
  XmlPath path_;
  std::string text_; /* since the last tag */
  std::exception_ptr thrown_;
  std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser_;
};

}  // namespace

bool read_xml(const std::string &document,
              const std::function<void(const XmlPath &, const std::string &, bool)> &on_element) {
  return Reading(on_element).read(document);
}

}  // namespace outbox::aws_sink
