//! How strong containment is: named tiers, each a set of layers.

use std::fmt;

/// How well programs are contained, weakest first. Named in every log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A process of its own with limits; sees the user's files, network and processes.
    Process,
    /// The kernel refuses files, sockets, signals and dangerous system calls.
    Landlock,
    /// There is nothing to refuse: an own root, own processes, an own network.
    Namespaces,
    /// Both.
    Sealed,
}

impl Tier {
    /// All, weakest first.
    pub const ALL: [Self; 4] = [Self::Process, Self::Landlock, Self::Namespaces, Self::Sealed];

    /// As in logs and settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
            Self::Sealed => "sealed",
        }
    }

    /// Its tier, if it is one's name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name() == name)
    }

    /// What it is made of.
    pub fn layers(self) -> Layers {
        let process = Layers::NONE.with(Layer::Limits);
        let drop_capabilities = process.with(Layer::Identity).with(Layer::Seccomp);
        match self {
            Self::Process => process,
            Self::Landlock => drop_capabilities.with(Layer::Landlock),
            Self::Namespaces => drop_capabilities.with(Layer::Namespaces),
            Self::Sealed => drop_capabilities.with(Layer::Landlock).with(Layer::Namespaces),
        }
    }

    /// The strongest tier these layers make up.
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
    /// System calls no program needs are refused.
    Seccomp,
    /// Files, signals and ports are refused unless granted.
    Landlock,
    /// Own root, processes, network, users.
    Namespaces,
    /// Limits of all a worker's processes together. Part of no tier.
    Cgroups,
}

impl Layer {
    /// All, in the order they are shown.
    pub const ALL: [Self; 6] = [
        Self::Limits,
        Self::Identity,
        Self::Seccomp,
        Self::Landlock,
        Self::Namespaces,
        Self::Cgroups,
    ];

    /// As shown.
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
                "memory, processor time, processes, open files and file sizes end somewhere"
            }
            Self::Identity => "no capabilities; under root, a user that owns nothing",
            Self::Seccomp => {
                "no tracing, mounting, new namespaces, kernel interfaces or foreign sockets"
            }
            Self::Landlock => {
                "only granted files; one agent's worker cannot signal or trace another's"
            }
            Self::Namespaces => {
                "the host's files, processes and network are not there; scratch space is private and bounded"
            }
            Self::Cgroups => {
                "memory and processes end somewhere for a program and all it starts together, not for each alone"
            }
        }
    }
}

/// Some layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers(u8);

impl Layers {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self((1 << Layer::ALL.len()) - 1);

    /// These and another.
    #[must_use]
    pub const fn with(self, layer: Layer) -> Self {
        Self(self.0 | 1 << layer as u8)
    }

    /// These but one.
    #[must_use]
    pub const fn without(self, layer: Layer) -> Self {
        Self(self.0 & !(1 << layer as u8))
    }

    /// Whether it is among them.
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
