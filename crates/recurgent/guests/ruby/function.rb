module Recurgent
  # How the function of a method is named, and how the arguments of a call reach its parameters. The same in every
  # guest, and in the host, which checks new programs before they run (`dialect/head.rs`, `dialect/signature.rs`).
  module Function
    RESERVED = Set.new(%w[BEGIN END __ENCODING__ __FILE__ __LINE__ alias and begin break case class def defined do else
                          elsif end ensure false for if in module next nil not or redo rescue retry return self super
                          then true undef unless until when while yield]).freeze
    # Names of the program's surface: the function of a method with such a name has a `_` after it.
    SURFACE = Set.new(%w[args kwargs result context memory tool delegate remember content]).freeze

    class << self
      # The name that the function of a method has in a program.
      def name_in(source, method)
        name = method.match?(/[?!]\z/) ? identifier(method[0..-2]) + method[-1] : identifier(method)
        name += "_" if SURFACE.include?(name)
        name != method && !defines?(source, method) && defines?(source, name) ? name : method
      end

      # The text as a name: `a-b` is `a_b`, `2fa` is `_2fa`, `class` is `class_`.
      def identifier(text)
        name = text.gsub(/[^[:alnum:]_]/, "_")
        name = "_#{name}" if name.empty? || name.match?(/\A[[:digit:]]/)
        RESERVED.include?(name) ? "#{name}_" : name
      end

      # The keyword arguments of a call by the names of the parameters that take them: `end` reaches `end_`, and
      # `from` reaches `from_unit` if nothing else could be meant. `placed` arguments are given by position.
      def bound_keywords(function, placed, kwargs)
        return kwargs if kwargs.empty?

        free = free_parameters(function.parameters, placed)
        names = kwargs.keys.reject { |name| free.include?(name) }.to_h do |name|
          mapped = identifier(name.name).to_sym
          [name, free.include?(mapped) ? mapped : name]
        end
        unless function.parameters.any? { |kind, _| kind == :keyrest } # it takes every other name as it is
          left = names.reject { |_, parameter| free.include?(parameter) }.keys
          names.update(akin(left, free - kwargs.keys - names.values))
        end
        names.empty? ? kwargs : kwargs.to_h { |name, value| [names.fetch(name, name), value] }
      end

      private

      def defines?(source, name) = source.match?(/\bdef\s+#{Regexp.escape(name)}(?![\w?!])/)

      def free_parameters(parameters, placed)
        positional = parameters.select { |kind, _| %i[req opt].include?(kind) }.drop(placed)
        named = parameters.select { |kind, _| %i[key keyreq].include?(kind) }
        (positional + named).filter_map(&:last)
      end

      # Pairs of a name and a parameter of which one begins with the other and `_`, if each has only one such partner.
      def akin(names, parameters)
        pairs = names.product(parameters).select { |name, parameter| begins?(name.name, parameter.name) }
        firsts, seconds = pairs.map(&:first).tally, pairs.map(&:last).tally
        pairs.select { |name, parameter| firsts[name] == 1 && seconds[parameter] == 1 }.to_h
      end

      def begins?(name, parameter)
        name, parameter = name.sub(/_+\z/, ""), parameter.sub(/_+\z/, "")
        parameter.start_with?("#{name}_") || name.start_with?("#{parameter}_")
      end
    end
  end
end
