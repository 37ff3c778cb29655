"""What users must learn to write options: their names, and the forms of values."""

from option_tables import TABLES, every_option

OF_LIBRDKAFKA = {"bootstrap_servers", "https_ca_pem"}  # bootstrap.servers, https.ca.pem


def test_there_are_few_names():
    names = every_option().keys() - OF_LIBRDKAFKA
    assert len(names) <= 75, sorted(names)


def test_values_have_few_forms():
    forms = {row.form for table in TABLES for row in table.rows()}
    assert len(forms) <= 8, forms


def test_a_name_has_one_form_in_all_kinds():
    """Except for names that are the peer's own terms."""
    several = {name: forms for name, forms in every_option().items() if len(forms) > 1}
    assert several.keys() == {"method", "stream", "url"}, several
