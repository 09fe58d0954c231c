"""The catalogue of porting hazards: what each rule is called, says and recommends."""

from chipshift.audit.rules.rule import Names, Rule, Source, rules

__all__ = ["Names", "Rule", "Source", "rules"]
