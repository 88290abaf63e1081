#!/usr/bin/env python3
"""What generate.py reads of the sources, and what it refuses."""
import sys
import unittest

sys.dont_write_bytecode = True
import generate


class Reasons(unittest.TestCase):
    def test_a_code_has_its_meaning_and_who_mends_it(self):
        proto = """enum ReasonCode {
  REASON_UNSPECIFIED = 0;

  // Members

  // Fewer exist
  // than are needed.
  // user: make them.
  // nobody: or wait.
  MEMBERS_MISSING = 1;
}"""
        self.assertEqual(generate.reasons(proto), [("Members", [
            ("MEMBERS_MISSING", "Fewer exist than are needed.", [("user", "make them."), ("nobody", "or wait.")])])])

    def test_one_that_nobody_can_mend_is_refused(self):
        for comment in ("  // Fewer exist.\n", "  // user: make them.\n", "", "  // It.\n  // user: do.\n  // More.\n"):
            with self.assertRaises(SystemExit, msg=comment):
                generate.reasons("enum ReasonCode {\n\n  // Members\n\n" + comment + "  MEMBERS_MISSING = 1;\n}")


class Settings(unittest.TestCase):
    def test_defaults_are_the_headers(self):
        known = generate.defaults("  absl::Duration node_grace = absl::Seconds(30);\n  size_t most = 20'000;\n"
                                  "  QuotaMode quota = QuotaMode::kInternal;\n  int none;\n")
        self.assertEqual(known, {"node_grace": "30s", "most": "20000", "quota": "internal"})

    def test_what_is_read(self):
        source = ('void ReadEngineOptions(int node) {\n  fields.Read("a", &options->of_a);\n'
                  '      {"b", &options->of_b},\n  fields.Take("c");\n}\nvoid Other() {\n  fields.Read("d", &x);\n}\n')
        self.assertEqual(generate.what_is_read(source, "ReadEngineOptions"), {"a": "of_a", "b": "of_b", "c": ""})

    def test_each_setting_of_the_program_is_a_value_of_the_chart(self):
        names = [name for name, _, _, _ in generate.settings()]
        self.assertIn("config.engine.nodeGrace", names)
        self.assertIn("config.quota", names)
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
