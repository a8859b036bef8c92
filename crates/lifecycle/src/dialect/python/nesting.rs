//! Refuses a program whose syntax tree would be too deep to walk and to drop.
//!
//! Ruff's parser grows its stack as it needs, but a tree it made of `1+1+1+…` is as deep as the
//! chain is long. The depth of a tree is bounded from its tokens: in each part between commas, every
//! operator adds a level, and a bracket adds the levels inside it.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::Mode;
use ruff_python_parser::lexer::lex;

use super::super::MAX_NESTING;

/// Whether the program is nested too deeply. The lexer does not report where.
pub(in crate::dialect) fn too_deep(source: &str) -> bool {
    let mut lexer = lex(source, Mode::Module);
    let mut scan = Scan { levels: vec![Level::default()], blocks: 0 };
    loop {
        let token = lexer.next_token();
        if scan.depth(token) > MAX_NESTING {
            return true;
        }
        if token == TokenKind::EndOfFile {
            return false;
        }
    }
}

struct Scan {
    /// The open brackets, outermost first; the first is the statement itself.
    levels: Vec<Level>,
    /// How many indented blocks are open.
    blocks: usize,
}

/// One open bracket.
#[derive(Default)]
struct Level {
    /// Levels of the tree around it.
    above: usize,
    /// Operators in the current part.
    operators: usize,
    /// The deepest bracket closed in the current part.
    inside: usize,
    /// The deepest part before the current one.
    deepest: usize,
    /// Lambdas whose parameters are still being listed: their commas do not end a part.
    lambdas: usize,
}

impl Level {
    fn depth(&self) -> usize {
        self.deepest.max(self.operators + self.inside)
    }

    fn end_part(&mut self) {
        *self = Self { above: self.above, deepest: self.depth(), ..Self::default() };
    }
}

impl Scan {
    /// Takes a token in; the greatest depth the tree can have by now.
    #[expect(clippy::wildcard_enum_match_arm, reason = "ruff's tokens; the rest adds no level")]
    fn depth(&mut self, token: TokenKind) -> usize {
        match token {
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => self.open(),
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => self.close(),
            TokenKind::Newline | TokenKind::Semi => self.levels = vec![Level::default()],
            TokenKind::Indent => self.blocks += 1,
            TokenKind::Dedent => self.blocks = self.blocks.saturating_sub(1),
            _ => self.operator(token),
        }
        self.blocks + self.levels.last().map_or(0, |level| level.above + level.depth())
    }

    fn open(&mut self) {
        let above = self.levels.last().map_or(0, |around| around.above + around.operators + 1);
        self.levels.push(Level { above, ..Level::default() });
    }

    fn close(&mut self) {
        if self.levels.len() < 2 {
            return;
        }
        let closed = self.levels.pop().unwrap_or_default();
        if let Some(around) = self.levels.last_mut() {
            around.inside = around.inside.max(closed.depth() + 1);
            around.operators += 1;
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "ruff's tokens; the rest adds no level")]
    fn operator(&mut self, token: TokenKind) {
        let Some(level) = self.levels.last_mut() else { return };
        match token {
            TokenKind::Comma if level.lambdas == 0 => level.end_part(),
            TokenKind::Colon => level.lambdas = level.lambdas.saturating_sub(1),
            TokenKind::Lambda => {
                level.lambdas += 1;
                level.operators += 1;
            }
            _ if deepens(token) => level.operators += 1,
            _ => {}
        }
    }
}

/// Whether the token alone puts what it stands with one level deeper.
fn deepens(token: TokenKind) -> bool {
    matches!(
        token,
        TokenKind::Amper
            | TokenKind::At
            | TokenKind::Await
            | TokenKind::CircumFlex
            | TokenKind::Dot
            | TokenKind::DoubleSlash
            | TokenKind::DoubleStar
            | TokenKind::If
            | TokenKind::LeftShift
            | TokenKind::Minus
            | TokenKind::Not
            | TokenKind::Percent
            | TokenKind::Plus
            | TokenKind::RightShift
            | TokenKind::Slash
            | TokenKind::Star
            | TokenKind::Tilde
            | TokenKind::Vbar
            | TokenKind::Yield
    )
}
