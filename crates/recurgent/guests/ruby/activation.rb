# Guest side of the worker protocol (specs/worker-protocol.md), for Ruby 3.1 and later.
#
# One process starts here as the *zygote*: it activates its environment, if it is given one, answers
# `fork` and `reap` on descriptor 0 and never touches guest code. Each fork becomes a *worker*, which
# serves `execute` frames on its channel:
#
#   Zygote --fork--> Worker --per execute--> Execution
#                      |- Channel    frames and asks, one at a time
#                      |- Context    the agent's context, tracking the keys a program touches
#                      `- Programs   compiled programs by digest
#
# A program may patch, close or replace anything it can reach. What `done` needs is therefore bound
# once, as a Method or UnboundMethod, where that is cheap.

# The environment: exactly the gems of its lock, activated before anything else could activate others.
# Not by Bundler's setup: what comes with Ruby as a gem (csv, matrix, rexml) must load here as anywhere.
module Recurgent
  # A declared gem that is installed but does not load.
  class ActivationFailed < StandardError
    attr_reader :gem_name

    def initialize(gem_name, problem)
      super("#{gem_name}: #{problem.class}: #{problem.message}")
      @gem_name = gem_name
    end
  end

  # Gems of the host that do not come with Ruby cannot be loaded: programs declare what they need.
  module OwnGems
    # Gems that Ruby is distributed with but that are not default gems, in any version from 3.1.
    BUNDLED = %w[
      abbrev base64 bigdecimal csv debug drb getoptlong matrix minitest mutex_m net-ftp net-imap net-pop net-smtp nkf
      observer power_assert prime racc rake rbs repl_type_completor resolv-replace rexml rinda rss syslog test-unit
      typeprof
    ].freeze

    class << self
      # Where the gems of the environment are.
      attr_accessor :gem_home

      def include?(stub)
        stub.default_gem? || BUNDLED.include?(stub.name) || stub.base_dir == gem_home
      end
    end

    def stubs = super.select { |stub| OwnGems.include?(stub) }

    def stubs_for(name) = super.select { |stub| OwnGems.include?(stub) }
  end

  module Activation
    class << self
      attr_reader :problem

      # `gem_home name=version … -- declared=feature …`, as the host gives it.
      def run(gem_home, *rest)
        locked, declared = rest.slice_when { |argument, _| argument == "--" }.to_a
        OwnGems.gem_home = gem_home
        Gem.use_paths(gem_home, [gem_home, *Gem.path])
        named(locked - ["--"]) { |name, version| gem(name, "= #{version}") }
        named(declared) do |name, feature|
          report(name)
          feature.empty? ? load_feature(Gem.loaded_specs.fetch(name)) : require(feature)
        end
      rescue ActivationFailed => problem
        @problem = problem
      end

      private

      # Names the gem that is loaded next, on the control channel.
      def report(name)
        control = IO.for_fd(0, "w", autoclose: false)
        control.syswrite(%({"op":"loading","package":"#{name}"}))
      end

      def named(gems)
        gems.to_a.each do |entry|
          name, version = entry.split("=", 2)
          yield name, version
        rescue Exception => problem # a gem may even exit
          raise ActivationFailed.new(name, problem)
        end
      end

      # The feature named like the gem, or the only one it has.
      def load_feature(spec)
        features = spec.full_require_paths.flat_map { |path| Dir.children(path) if File.directory?(path) }
        files = features.compact.filter_map { |file| file[/\A(.+)\.(?:rb|so|bundle)\z/, 1] }.uniq
        likely = [spec.name, spec.name.tr("-", "/"), spec.name.tr("-", "_")]
        feature = likely.find { |name| found?(spec, name) } || (files.first if files.one?)
        require feature if feature
      end

      def found?(spec, feature)
        spec.full_require_paths.any? { |path| Dir.glob("#{feature}.{rb,so,bundle}", base: path).any? }
      end
    end
  end
end

Gem::Specification.singleton_class.prepend(Recurgent::OwnGems)
Recurgent::Activation.run(*ARGV) unless ARGV.empty?
ARGV.clear
