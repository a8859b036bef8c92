//! The guest side of the worker protocol: one program text for each language, joined from the files of
//! `guests/python` and `guests/ruby`. An interpreter gets it on its command line, so that nothing needs to
//! be installed or found at run time.
//!
//! The files of a language share one namespace and are in the order in which they run: each may use at
//! once what the files before it define, and later what any of them defines. A form feed stands between them.

macro_rules! join {
    ($folder:literal, $extension:literal: $($file:literal)+) => {
        concat!($(include_str!(concat!("../../guests/", $folder, "/", $file, $extension)), "\n\u{c}\n"),+)
    };
}

/// Runs the harness in Python, given as the first argument, file by file. Compiled as a whole it would leave 4 MB of
/// holes in the zygote's memory, and so more memory in each worker.
pub(super) const PYTHON_LOADER: &str = "\
import sys
for part in sys.argv.pop(1).split('\\f'):
    exec(compile(part, '<string>', 'exec'))
";

/// The harness in Python.
pub(super) const PYTHON: &str = join!("python", ".py":
    "setup" "boundary" "outcome" "channel" "context" "agent" "execution" "function" "program" "exception" "contact"
    "network" "report" "output" "worker" "activation" "seal" "zygote" "main");

/// The harness in Ruby.
pub(super) const RUBY: &str = join!("ruby", ".rb":
    "activation" "setup" "agent" "outcome" "boundary" "record" "channel" "context" "execution"
    "main_object" "function" "program" "exception" "contact" "network" "report" "output" "worker" "seal" "zygote" "main");

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest single argument the kernel passes to a new program (`MAX_ARG_STRLEN`).
    const ARGUMENT_BYTES: usize = 128 * 1024;

    #[test]
    fn a_harness_fits_into_one_argument() {
        assert!(PYTHON.len() < ARGUMENT_BYTES);
        assert!(RUBY.len() < ARGUMENT_BYTES);
    }
}
