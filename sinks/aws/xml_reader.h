/* xml_reader.h: reads XML element by element, by Expat. Attributes and namespaces are skipped, a DTD is refused. */
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace outbox::aws_sink {

/* The names of the elements that lead to one, itself included. */
using XmlPath = std::vector<std::string>;

/* Calls `on_element` when an element begins, without text, and when it ends, with its text. Returns false if the
 * document is not valid XML; what it calls may throw. */
bool read_xml(const std::string &document,
              const std::function<void(const XmlPath &path, const std::string &text, bool ends)> &on_element);

}  // namespace outbox::aws_sink
