"""Reading the compilers' optimised programs: what they hold, send, repeat and pad."""
