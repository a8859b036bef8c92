module Recurgent
  class InvalidCode < StandardError; end

  # A compiled program: each call of the factory gives a fresh body, and a reader of its `result`.
  class Program
    # Line 0, so that the program's own lines count from 1 and its first column stays the first.
    HEAD = "->() { result = nil; [->() {\n"
    TAIL = "\n}, ->() { result }] }"
    NODE = RubyVM::AbstractSyntaxTree::Node
    DEFINITIONS = %i[DEFN DEFS CLASS MODULE SCLASS].freeze
    # What a program may call and still only define.
    REQUIRING = Set[:require, :require_relative].freeze

    def initialize(source)
      text = without_data(source)
      scan(text)
      @factory = COMPILE.call(HEAD + text + TAIL, FILE, FILE, 0, frozen_string_literal: frozen?(text)).eval
    rescue ScriptError, ArgumentError, EncodingError => problem
      raise InvalidCode, problem.message
    end

    def run(execution)
      main = Main.new(execution)
      body, result = @factory.call
      added = @constants.reject { |name| Object.const_defined?(name, false) }
      value = main.instance_exec(&body)
      value = nil if @ends_in_definition # a Symbol or nil that only `def` itself meant
      value = result.call unless nil == result.call
      nil == value ? call_function(main, execution) : value # a BasicObject has no `nil?`
    ensure
      added&.each { |name| Object.send(:remove_const, name) if Object.const_defined?(name, false) }
    end

    private

    # The text before `__END__`. Inside a heredoc or comment the marker is content, and what comes
    # before it does not parse.
    def without_data(source)
      source.to_enum(:scan, /^__END__\r?$/).each do
        before = Regexp.last_match.pre_match
        return before if parses?(before)
      end
      source
    end

    def parses?(text)
      PARSE.call(text)
    rescue SyntaxError
      false
    end

    def frozen?(text)
      text[/\A(\s*(#.*)?\n)*?\s*#.*frozen[_-]string[_-]literal:\s*(\w+)/i, 3]&.downcase == "true"
    end

    # Parsing the bare text also refuses what would close the wrapper around it. What is learnt:
    # functions its top level calls, constants it defines, and whether it ends in a definition.
    def scan(text)
      @called, @constants = Set.new, Set.new
      top = tree_of(text).children[2]
      last = top&.type == :BLOCK ? top.children.compact.last : top
      @ends_in_definition = DEFINITIONS.include?(last&.type)
      pending = [top]
      while (node = pending.pop)
        note(node)
        pending.concat(node.children.grep(NODE)) unless DEFINITIONS.include?(node.type)
      end
    end

    def tree_of(text)
      PARSE.call(text)
    rescue SyntaxError
      COMPILE.call(text, FILE, FILE, 1) # says the same, with the line
      raise
    end

    def note(node)
      first, second = node.children
      case node.type
      when :FCALL, :VCALL then @called << first
      when :CALL then @called << second if first.type == :SELF
      when :CDECL then @constants << first if first.is_a?(Symbol)
      when :CLASS, :MODULE then @constants << first.children[1] if first.type == :COLON2 && !first.children[0]
      end
    end

    # The function form: the program defines the method and leaves calling it to us.
    def call_function(main, execution)
      defined = main.singleton_methods(false)
      name = execution.method_name.to_sym
      name = only_function(defined) unless defined.include?(name)
      return if name.nil? || @called.include?(name)

      args = execution.args
      function = main.method(name)
      args = [execution.context, *args] if wants_context?(function, execution)
      begin
        main.__send__(name, *args, **execution.kwargs)
      rescue ArgumentError => problem
        execution.arity_error = problem unless fits?(function, args, execution.kwargs)
        raise
      end
    end

    # Whether a function takes these arguments.
    def fits?(function, args, kwargs)
      kinds = function.parameters.group_by(&:first).transform_values { |list| list.map(&:last) }
      keywords = kinds.values_at(:keyreq, :key).compact.flatten
      takes_keywords = !keywords.empty? || kinds.key?(:keyrest)
      count = args.size + (kwargs.empty? || takes_keywords ? 0 : 1) # a function without keywords gets a Hash
      required = kinds.fetch(:req, []).size
      most = kinds.key?(:rest) ? count : required + kinds.fetch(:opt, []).size
      count.between?(required, most) && (!takes_keywords || fits_keywords?(kinds, keywords, kwargs))
    end

    def fits_keywords?(kinds, keywords, kwargs)
      (kinds.fetch(:keyreq, []) - kwargs.keys).empty? && (kinds.key?(:keyrest) || (kwargs.keys - keywords).empty?)
    end

    # The only function of a program that does nothing but define it, whatever it is called.
    def only_function(defined)
      defined.first if defined.one? && @ends_in_definition && @called.subset?(REQUIRING)
    end

    # Whether its first parameter is the context, and the call's own arguments leave it free.
    def wants_context?(function, execution)
      positional = function.parameters.select { |kind, _| %i[req opt rest].include?(kind) }
      kind, first = positional.first
      kind != :rest && %i[ctx context].include?(first) &&
        (positional.any? { |other, _| other == :rest } || execution.args.size < positional.size)
    end
  end

  # The programs used last, by digest.
  class Programs
    def initialize
      @kept = {}
    end

    def check(frame)
      return if frame.key?("code") || @kept.key?(frame["code_digest"])

      raise Refusal.new("UnknownDigest", "this worker does not hold #{frame['code_digest']}")
    end

    def find(frame)
      digest = frame["code_digest"]
      unless (program = @kept.delete(digest))
        program = Program.new(frame["code"])
        @kept.shift if @kept.size >= KEPT_PROGRAMS
      end
      @kept[digest] = program
    end
  end
end
