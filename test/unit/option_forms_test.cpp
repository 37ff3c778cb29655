/* The form of each option's values is that of its parser: a value of no such form is refused. */
#include <gtest/gtest.h>

#include "delivery/options/common_options.h"
#include "sinks/kafka/kafka_config.h"
#include "sinks/webhook/webhook_options.h"

using namespace outbox;

namespace {

const char *of_another_form(OptionForm form) {
  switch (form) {
  case OptionForm::Word:
    return "neither nor";
  case OptionForm::Number:
    return "many";
  case OptionForm::Duration:
    return "15";
  case OptionForm::List:
    return "one,,two";
  case OptionForm::Template:
    return "${nothing}";
  case OptionForm::Object:
    return "tenant=42";
  case OptionForm::Rate:
    return "fast";
  case OptionForm::Text:
    break;
  }
  return "";
}

template <class Config> void each_form_is_that_of_the_parser(const OptionTable<Config> &table) {
  for (const OptionSpec &spec : table.specs()) {
    if (spec.form == OptionForm::Text)
      continue;
    SCOPED_TRACE(std::string(spec.name.text) + ": " + form_text(spec.form));
    Config config;
    EXPECT_THROW(
        table.read({{spec.name, of_another_form(spec.form)}}, spec.in_server ? OB_SERVER : OB_USER_MAPPING, config),
        BadInput);
  }
}

}  // namespace

TEST(OptionForms, AreThoseOfTheParsers) {
  each_form_is_that_of_the_parser(CommonOptions::table());
  each_form_is_that_of_the_parser(KafkaOptions::table());
  each_form_is_that_of_the_parser(WebhookOptions::table());
}
