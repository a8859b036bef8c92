//! `recurgent demo`: see it work.

use clap::Args;
use recurgent::Language;

use super::settings::{StateFlags, language_parser};
use crate::demo::{self, DemoFault, Plan, Tour};
use crate::exit::{CommandFault, Exit};
use crate::interrupt::Interrupt;
use crate::render::story::StoryOutput;
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent demo                 in Python
  recurgent demo                 again: what is stored needs no model
  recurgent demo --guest ruby    the same in Ruby
  recurgent demo --live          with the embedded model: `recurgent model install` first";

/// See it work on this machine, without a model, a key or a network
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoOptions {
    /// The language programs are written in
    #[arg(long, value_name = "LANGUAGE", value_parser = language_parser())]
    guest: Option<Language>,
    /// Let a model write the programs: the embedded one, or the provider that is configured
    #[arg(long)]
    live: bool,
    /// Forget what earlier demos stored
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    place: StateFlags,
}

impl DemoOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let config = self.place.config(&[("guest", self.guest.map(Language::name))])?;
        let notice = "stopping the demo; once more to leave at once";
        let (ended, story) = Interrupt::install()?.announcing(notice, |cancellation| {
            let story = StoryOutput::new(cancellation.clone());
            let plan = Plan {
                guest: config.agent_options().language,
                tour: if self.live { Tour::Live } else { Tour::Recorded },
                fresh: self.fresh,
                colour: render::coloured(Stream::Output),
                cancellation,
                story: story.clone(),
            };
            (demo::run(&config, &plan), story)
        });
        // A reader that left (`| head`) has seen enough; whatever else ended the demo then does not count.
        if story.ended()? { ended.map(|()| Exit::Ok).map_err(fault) } else { Ok(Exit::Ok) }
    }
}

fn fault(fault: DemoFault) -> CommandFault {
    let message = fault.to_string();
    match fault {
        DemoFault::Setup(fault) => fault.into(),
        DemoFault::Agent(fault) => fault.into(),
        DemoFault::Fresh(..) | DemoFault::Feeds(_) | DemoFault::Example(_) => {
            CommandFault::setup(message)
        }
        DemoFault::NoModel(failure) => CommandFault::no_model(&failure),
        DemoFault::Guest(_) => CommandFault::unavailable(message),
        DemoFault::Interrupted => CommandFault::cancelled(message),
        DemoFault::Unexpected { .. } => CommandFault::failed(message),
    }
}
