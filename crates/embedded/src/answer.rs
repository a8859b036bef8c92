//! One answer while it is written: its tokens, its text and what guides it.

use std::rc::Rc;

use crate::guide::{Guide, NextMove};
use crate::kv::KvCache;
use crate::request::{EndOfText, Generated};
use crate::sampling::{ChosenToken, SamplingRule, SeededRandom, choose};
use crate::tokenizer::{TextJoiner, Tokenizer};

/// The longest loop of tokens that is noticed.
const MAX_LOOP_TOKENS: usize = 64;
/// How often a loop runs before the answer ends.
const MIN_LOOP_RUNS: usize = 4;
/// How many tokens the runs of a loop have together, at least: short loops are common in honest text.
const MIN_LOOPED_TOKENS: usize = 48;

/// What every answer to a request has in common.
pub(crate) struct AnswerRules<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) max_tokens: usize,
}

/// An answer that is being written.
pub(crate) struct GrowingAnswer {
    guide: Guide,
    random: SeededRandom,
    /// The scores after the prompt.
    sampling: SamplingRule,
    first_scores: Rc<[f32]>,
    /// The scores after the last token; none if tokens wait to be read by the model.
    scores: Option<Rc<[f32]>>,
    tokens: Vec<AnswerToken>,
    pub(crate) cache: KvCache,
    text: String,
    joiner: TextJoiner,
    reported: usize,
    sampled: usize,
    ending: Option<EndOfText>,
}

/// A token and the part of the text that it made.
#[derive(Debug, Clone, Copy)]
struct AnswerToken {
    id: u32,
    start: usize,
    end: usize,
    log_probability: f32,
}

impl GrowingAnswer {
    pub(crate) fn new(
        guide: Guide,
        random: SeededRandom,
        sampling: SamplingRule,
        scores: &Rc<[f32]>,
        cache: KvCache,
    ) -> Self {
        Self {
            guide,
            random,
            sampling,
            first_scores: Rc::clone(scores),
            scores: Some(Rc::clone(scores)),
            tokens: Vec::new(),
            cache,
            text: String::new(),
            joiner: TextJoiner::default(),
            reported: 0,
            sampled: 0,
            ending: None,
        }
    }

    /// Decides and samples until the model has to read tokens or the answer is finished.
    pub(crate) fn advance(&mut self, rules: &AnswerRules<'_>) {
        while self.ending.is_none() {
            match self.guide.next(&self.text) {
                NextMove::Sample { .. } if self.scores.is_none() => return,
                NextMove::Sample { warmer } => self.sample(rules, warmer),
                decided @ (NextMove::Replace { .. } | NextMove::Stop { .. }) => {
                    self.perform(decided, rules);
                }
            }
        }
    }

    /// The tokens that the model has not read yet.
    pub(crate) fn unread(&self) -> impl Iterator<Item = u32> {
        let read = if self.ending.is_some() { self.tokens.len() } else { self.cache.len() };
        self.tokens.iter().skip(read).map(|token| token.id)
    }

    /// Takes the scores after the last token.
    pub(crate) fn set_scores(&mut self, scores: Vec<f32>) {
        self.scores = Some(scores.into());
    }

    /// The text that stays and was not reported yet.
    pub(crate) fn unreported(&mut self) -> Option<&str> {
        let settled = match self.ending {
            Some(_) => self.text.len(),
            None => self.guide.settled(&self.text),
        };
        let start = self.reported;
        self.reported = settled.max(start);
        self.text.get(start..self.reported).filter(|text| !text.is_empty())
    }

    /// How many tokens were sampled, with those that were taken back.
    pub(crate) fn sampled(&self) -> usize {
        self.sampled
    }

    /// Ends an unfinished answer.
    pub(crate) fn cancel(&mut self) {
        if self.ending.is_none() {
            self.end(EndOfText::Cancelled, self.guide.kept(&self.text));
        }
    }

    /// The finished answer.
    pub(crate) fn finish(self) -> Generated {
        Generated {
            tokens: self.tokens.len(),
            ending: self.ending.unwrap_or(EndOfText::Stop),
            log_probability: self.tokens.iter().map(|token| token.log_probability).sum(),
            text: self.text,
        }
    }

    fn sample(&mut self, rules: &AnswerRules<'_>, warmer: f32) {
        if self.tokens.len() >= rules.max_tokens {
            return self.end(EndOfText::Length, self.guide.kept(&self.text));
        }
        if self.is_looping() || self.guide.repeats(&self.text) {
            return self.end(EndOfText::Repetition, self.guide.kept(&self.text));
        }
        let Some(scores) = self.scores.take() else { return };
        let rule =
            SamplingRule { temperature: self.sampling.temperature + warmer, ..self.sampling };
        let end = rules.tokenizer.end();
        let chosen = choose(&scores, rule, &mut self.random, |token| {
            token == end || !rules.tokenizer.is_control(token)
        });
        self.sampled += 1;
        match chosen {
            Some(ChosenToken { token, log_probability }) if token != end => {
                self.push(rules, token, log_probability);
            }
            Some(_) | None => {
                self.scores = Some(scores);
                let next = self.guide.at_end(&self.text);
                self.perform(next, rules);
            }
        }
    }

    fn push(&mut self, rules: &AnswerRules<'_>, id: u32, log_probability: f32) {
        let start = self.text.len();
        let added = self.joiner.push(rules.tokenizer.bytes(id).unwrap_or_default());
        self.text.push_str(&added);
        self.tokens.push(AnswerToken { id, start, end: self.text.len(), log_probability });
        self.scores = None;
    }

    fn perform(&mut self, next: NextMove, rules: &AnswerRules<'_>) {
        match next {
            NextMove::Sample { .. } => {}
            NextMove::Stop { keep } => self.end(EndOfText::Stop, keep),
            NextMove::Replace { from, with } => {
                let forced = self.take_back(from) + &with;
                for token in rules.tokenizer.encode(&forced) {
                    self.push(rules, token, 0.0);
                }
                self.read_again();
            }
        }
    }

    /// Drops the text from a place on, and the tokens that made it. Returns what is lost before that place, if it is
    /// inside a token.
    fn take_back(&mut self, from: usize) -> String {
        let kept = self.tokens.iter().take_while(|it| it.start < from && it.end <= from).count();
        self.tokens.truncate(kept);
        let end = self.tokens.last().map_or(0, |token| token.end);
        let lost = self.text.get(end..from).unwrap_or_default().to_owned();
        self.text.truncate(end);
        self.joiner = TextJoiner::default();
        lost
    }

    /// Makes the model read from the first token that it has not read in this form. The scores after the last kept
    /// token are not stored, so at least that one is read again.
    fn read_again(&mut self) {
        self.cache.truncate(self.tokens.len().saturating_sub(1));
        self.scores = self.tokens.is_empty().then(|| Rc::clone(&self.first_scores));
    }

    fn end(&mut self, ending: EndOfText, keep: usize) {
        let end = self.guide.trimmed(self.text.get(..keep).unwrap_or(&self.text));
        self.text.truncate(end);
        self.tokens.retain(|token| token.start < end);
        self.ending = Some(ending);
    }

    /// Whether the last tokens are the same few again and again.
    fn is_looping(&self) -> bool {
        let ids = || self.tokens.iter().rev().map(|token| token.id);
        (1..=MAX_LOOP_TOKENS).any(|period| {
            let looped = (period * MIN_LOOP_RUNS).max(MIN_LOOPED_TOKENS);
            looped + period <= self.tokens.len()
                && ids().zip(ids().skip(period)).take(looped).all(|(last, before)| last == before)
        })
    }
}
