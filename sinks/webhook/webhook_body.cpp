/*
 * webhook_body.cpp: the template is checked when CREATE SERVER runs: with a sample value for each variable it must
 * parse as JSON.
 */
#include "webhook_body.h"

#include <algorithm>

#include "delivery/base/base64.h"
#include "delivery/base/json_reader.h"
#include "delivery/base/text.h"
#include "delivery/engine/sink.h"
#include "delivery/formats/json_text.h"
#include "delivery/options/options.h"
#include "delivery/options/template.h"

namespace outbox {
namespace {

constexpr const char *variables_hint =
    "Outside quotes a variable is a whole JSON value, as in {\"data\": ${payload}}; inside quotes it is a part of a "
    "text, as in {\"ref\": \"order-${aggregate_id}\"}.";

/* The template with sample values, and a map from its positions back to the template. */
struct Sample {
  struct Piece {
    size_t here, there;
    bool variable;
  };
  std::string text;
  std::vector<Piece> pieces;

  void add(std::string_view piece, size_t there, bool variable) {
    pieces.push_back({text.size(), there, variable});
    text += piece;
  }
  size_t origin(size_t at) const {
    size_t there = 0;
    for (const Piece &piece : pieces)
      if (piece.here <= at)
        there = piece.there + (piece.variable ? 0 : at - piece.here);
    return there;
  }
};

/* The position of the first byte that is not valid JSON; npos if the text is valid. */
size_t find_error(const std::string &text) {
  return read_json(text, [](const JsonPath &, const JsonValue &) {}).value_or(text.npos);
}

/* Appends a JSON string, without its quotes if `in_text`. */
void append_string(std::string_view text, bool in_text, std::string &out) {
  size_t before = out.size();
  append_repaired_json_string(text, out);
  if (in_text) {
    out.pop_back();
    out.erase(before, 1);
  }
}

void append_bytes(std::string_view bytes, std::string &out) {
  out += '"';
  append_base64(bytes, out);
  out += '"';
}

void append_headers(const ob_event &event, std::string &out) {
  out += '{';
  for (size_t i = 0; i < event.n_headers; i++) {
    const ob_header &header = event.headers[i];
    if (i > 0)
      out += ',';
    append_string(view(header.name), false, out);
    out += ':';
    if (header.binary) {
      out += "{\"base64\":";
      append_bytes(view(header.value), out);
      out += '}';
    } else {
      append_string(view(header.value), false, out);
    }
  }
  out += '}';
}

}  // namespace

void BodyTemplate::add_variable(const std::string &option, std::string_view name, bool in_text) {
  Part part;
  part.in_text = in_text;
  if (name == "payload")
    part.what = What::Payload;
  else if (name == "headers")
    part.what = What::Headers;
  else if (Field::find(name, part.field))
    part.what = What::Field;
  else
    throw_unknown_variable(option, name, {"payload", "headers"});
  parts_.push_back(std::move(part));
}

BodyTemplate BodyTemplate::parse(const std::string &option, const std::string &text) {
  BodyTemplate body;
  if (text.empty())
    return body;
  Sample sample;
  bool in_text = false;
  size_t from = 0; /* start of the current literal */
  auto end_literal = [&](size_t at) {
    if (at == from)
      return;
    sample.add(std::string_view(text).substr(from, at - from), from, false);
    body.parts_.push_back({What::Literal, false, {}, text.substr(from, at - from)});
  };
  for (size_t at = 0; at < text.size(); at++) {
    if (text[at] == '\\' && in_text) {
      at++;
    } else if (text[at] == '"') {
      in_text = !in_text;
    } else if (text.compare(at, 2, "${") == 0) {
      size_t end = text.find('}', at);
      if (end == text.npos)
        throw BadInput(OB_BAD_VALUE, option, "template of option \"" + option + "\" has a variable that does not end",
                       "There is no \"}\" after \"" + text.substr(at, utf8_prefix(text.substr(at), 40)) + "\".",
                       "Write a variable as ${payload}.");
      end_literal(at);
      body.add_variable(option, std::string_view(text).substr(at + 2, end - at - 2), in_text);
      sample.add(in_text ? "x" : "null", at, true);
      at = end;
      from = end + 1;
    }
  }
  end_literal(text.size());

  if (size_t error = find_error(sample.text); error != text.npos) {
    size_t at = std::min(sample.origin(error), text.size()), start = at > 30 ? at - 30 : 0;
    while (start < at && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
      start++;
    std::string where = at >= text.size() ? "It ends too early, after \"" + text.substr(start) + "\"."
                                          : "It is no JSON at character " + std::to_string(at + 1) + ", after \"" +
                                                text.substr(start, at - start) + "\".";
    throw BadInput(OB_BAD_VALUE, option, "option \"" + option + "\" is not a JSON template", where, variables_hint);
  }
  return body;
}

void BodyTemplate::render(const ob_event &event, std::string &out) const {
  for (const Part &part : parts_) {
    if (part.what == What::Literal) {
      out += part.literal;
      continue;
    }
    /* Either `json`, a JSON value, or `text`, a plain text. */
    std::string json, text;
    bool has_text = false;
    if (part.what == What::Headers) {
      append_headers(event, json);
    } else if (part.what == What::Payload && event.payload.data && !event.payload_is_bytes) {
      if (!part.in_text) { /* the whole payload: avoids a copy */
        out += view(event.payload);
        continue;
      }
      json = view(event.payload);
    } else if (part.what == What::Payload) {
      has_text = event.payload.data != nullptr;
      append_base64(view(event.payload), text);
    } else if (const ob_header *header = part.field.header(event); header && header->binary) {
      has_text = true;
      append_base64(view(header->value), text);
    } else if (part.field.is_number()) {
      part.field.append(event, json);
    } else {
      has_text = part.field.append(event, text);
    }

    if (!json.empty() && !part.in_text)
      out += json;
    else if (part.in_text)
      append_string(json.empty() ? text : json, true, out);
    else if (has_text)
      append_string(text, false, out);
    else
      out += "null";
  }
}

}  // namespace outbox
