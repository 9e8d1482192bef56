//! Of all commands together: what they print can be typed.

mod command_hints;
