//! What decides about an answer while it grows: whether the next token is sampled, text is forced, lines are taken
//! back, or the answer ends.

mod object;
mod program;

pub(crate) use object::ObjectGuide;
pub(crate) use program::ProgramGuide;

use crate::request::Form;

/// What happens next to an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NextMove {
    /// The model writes the next token, at a temperature that is this much higher than asked for.
    Sample {
        /// What is added to the temperature.
        warmer: f32,
    },
    /// Everything from this place on is taken back, and this text stands there instead.
    Replace {
        /// The place, in bytes.
        from: usize,
        /// The forced text; empty if only something is taken back.
        with: String,
    },
    /// The answer ends, and only its first bytes belong to it.
    Stop {
        /// How many.
        keep: usize,
    },
}

impl NextMove {
    /// The model writes the next token as asked for.
    pub(crate) const SAMPLE: Self = Self::Sample { warmer: 0.0 };
}

/// The guide of one answer.
#[derive(Debug, Clone)]
pub(crate) enum Guide {
    /// Any text is right.
    Text,
    /// One JSON object.
    Object(ObjectGuide),
    /// A program.
    Program(ProgramGuide),
}

impl Guide {
    pub(crate) fn new(form: &Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Object { opening, value, closing } => {
                Self::Object(ObjectGuide::new(opening, value, closing))
            }
            Form::Program { language, head, method } => {
                Self::Program(ProgramGuide::new(*language, head, method))
            }
        }
    }

    /// The text that an answer begins with and that does not belong to it.
    pub(crate) fn opening(form: &Form) -> String {
        match form {
            Form::Text | Form::Object { .. } => String::new(),
            Form::Program { language, .. } => format!("```{language}\n"),
        }
    }

    /// Decides after the text has changed.
    pub(crate) fn next(&mut self, text: &str) -> NextMove {
        match self {
            Self::Text => NextMove::SAMPLE,
            Self::Object(guide) => guide.next(text),
            Self::Program(guide) => guide.next(text),
        }
    }

    /// Decides when the model wants to end.
    pub(crate) fn at_end(&mut self, text: &str) -> NextMove {
        match self {
            Self::Text => NextMove::Stop { keep: text.len() },
            Self::Object(guide) => guide.at_end(text),
            Self::Program(guide) => guide.at_end(text),
        }
    }

    /// How much of the text will never be taken back.
    pub(crate) fn settled(&self, text: &str) -> usize {
        match self {
            Self::Text | Self::Object(_) => text.len(),
            Self::Program(guide) => guide.settled(),
        }
    }

    /// How much of the text belongs to the answer if it ends here, for whatever reason.
    pub(crate) fn kept(&self, text: &str) -> usize {
        match self {
            Self::Text | Self::Object(_) => text.len(),
            Self::Program(guide) => guide.kept(text),
        }
    }

    /// How much of a finished text is left without spaces that do not matter.
    pub(crate) fn trimmed(&self, text: &str) -> usize {
        match self {
            Self::Text | Self::Object(_) => text.len(),
            Self::Program(_) => text.trim_end().len(),
        }
    }

    /// Whether the text repeats itself in a way that this form never needs.
    pub(crate) fn repeats(&self, text: &str) -> bool {
        match self {
            Self::Text | Self::Object(_) => false,
            Self::Program(_) => program::repeats_a_line(text),
        }
    }
}
