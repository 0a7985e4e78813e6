//! The rule as an executable.

millrace_sdk::executable!(rule::Rule);
