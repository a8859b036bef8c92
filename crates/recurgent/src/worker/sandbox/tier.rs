//! Sandbox tiers: each is a set of layers.

use std::fmt;

/// How strongly programs are contained, weakest first. Named in every log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A separate process with limits; it sees the user's files, network and processes.
    Process,
    /// The kernel refuses files, sockets, signals and dangerous system calls.
    Landlock,
    /// Its own root directory, processes and network: the host's are not visible.
    Namespaces,
    /// Landlock and namespaces together.
    Sealed,
}

impl Tier {
    /// Every tier, weakest first.
    pub const ALL: [Self; 4] = [Self::Process, Self::Landlock, Self::Namespaces, Self::Sealed];

    /// The name used in logs and settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
            Self::Sealed => "sealed",
        }
    }

    /// The tier of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name() == name)
    }

    /// The layers it consists of.
    pub fn layers(self) -> Layers {
        let process = Layers::NONE.with(Layer::Limits);
        let restricted = process.with(Layer::Identity).with(Layer::Seccomp);
        match self {
            Self::Process => process,
            Self::Landlock => restricted.with(Layer::Landlock),
            Self::Namespaces => restricted.with(Layer::Namespaces),
            Self::Sealed => restricted.with(Layer::Landlock).with(Layer::Namespaces),
        }
    }

    /// The strongest tier that these layers make up.
    pub(super) fn of(layers: Layers) -> Self {
        let whole = |tier: &Self| tier.layers().0 & layers.0 == tier.layers().0;
        Self::ALL.into_iter().rfind(whole).unwrap_or(Self::Process)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One means of containment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Resource limits.
    Limits,
    /// No capabilities; as root, a user that owns nothing.
    Identity,
    /// System calls that programs do not need are refused.
    Seccomp,
    /// Files, signals and ports are refused unless granted.
    Landlock,
    /// Its own root directory, processes, network and users.
    Namespaces,
    /// Limits of all processes of a worker together. Not part of any tier.
    Cgroups,
}

impl Layer {
    /// Every layer, in display order.
    pub const ALL: [Self; 6] = [
        Self::Limits,
        Self::Identity,
        Self::Seccomp,
        Self::Landlock,
        Self::Namespaces,
        Self::Cgroups,
    ];

    /// The display name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Identity => "identity",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
            Self::Cgroups => "cgroups",
        }
    }

    /// What it adds.
    pub const fn adds(self) -> &'static str {
        match self {
            Self::Limits => {
                "memory, processor time, processes, open files and file sizes are limited"
            }
            Self::Identity => "no capabilities; under root, a user that owns nothing",
            Self::Seccomp => {
                "no tracing, mounting, new namespaces, kernel interfaces or foreign sockets"
            }
            Self::Landlock => {
                "only granted files; one agent's worker cannot signal or trace another's"
            }
            Self::Namespaces => {
                "the host's files, processes and network are not visible; scratch space is private and bounded"
            }
            Self::Cgroups => {
                "memory and processes are limited for a program and all it starts together, not only for each process"
            }
        }
    }
}

/// A set of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers(u8);

impl Layers {
    /// No layer.
    pub const NONE: Self = Self(0);
    /// Every layer.
    pub const ALL: Self = Self((1 << Layer::ALL.len()) - 1);

    /// The set with one more layer.
    #[must_use]
    pub const fn with(self, layer: Layer) -> Self {
        Self(self.0 | 1 << layer as u8)
    }

    /// The set without a layer.
    #[must_use]
    pub const fn without(self, layer: Layer) -> Self {
        Self(self.0 & !(1 << layer as u8))
    }

    /// Whether the set has a layer.
    pub const fn has(self, layer: Layer) -> bool {
        self.0 & 1 << layer as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_reached_only_with_all_its_layers() {
        for tier in Tier::ALL {
            assert_eq!(Tier::of(tier.layers()), tier);
            assert_eq!(Tier::of(tier.layers().with(Layer::Cgroups)), tier);
            assert_eq!(Tier::named(tier.name()), Some(tier));
        }
        assert!(Layer::ALL.into_iter().all(|layer| Layers::ALL.has(layer)));
        for layer in [Layer::Identity, Layer::Seccomp] {
            assert_eq!(Tier::of(Tier::Sealed.layers().without(layer)), Tier::Process);
        }
        let without = |layer| Tier::of(Tier::Sealed.layers().without(layer));
        assert_eq!(without(Layer::Landlock), Tier::Namespaces);
        assert_eq!(without(Layer::Namespaces), Tier::Landlock);
        assert_eq!(Tier::named("none"), None);
    }
}
