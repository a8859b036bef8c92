module Recurgent
  class InvalidCode < StandardError; end

  # A program, compiled for each method it is run as: its function decides what of the text is run.
  class Program
    def initialize(source)
      @source, @variants = source, {}
    end

    def run(execution)
      (@variants[execution.method_name] ||= Variant.new(@source, execution.method_name.to_sym)).run(execution)
    end
  end

  # A compiled program: each call of the factory gives a fresh body, a reader of its `result`, and whether the body
  # came to its end: a `return` leaves the block inside at once.
  class Variant
    # Line 0, so that the program's own lines count from 1 and its first column stays the first.
    HEAD = "->() { result = __recurgent_ended = nil; [->() { __recurgent_value = proc {\n"
    TAIL = "\n}.call; __recurgent_ended = true; __recurgent_value }, ->() { result }, ->() { __recurgent_ended }] }"
    NODE = RubyVM::AbstractSyntaxTree::Node
    DEFINITIONS = %i[DEFN DEFS CLASS MODULE SCLASS].freeze
    # What a program may call and still only define.
    REQUIRING = Set[:require, :require_relative].freeze
    PRINTING = Set[:puts, :print, :p, :pp, :printf, :putc].freeze
    ASSERTION = /\Aassert/.freeze
    PROGRAM_NAMES = Set[:$0, :$PROGRAM_NAME].freeze

    def initialize(source, method)
      @method = method
      text = without_examples(without_data(source))
      # A function that is a local variable can be seen at the end of the text only.
      tail = @assigns_function ? "\n#{method}#{TAIL}" : TAIL
      @factory = COMPILE.call(HEAD + text + tail, FILE, FILE, 0, frozen_string_literal: frozen?(text)).eval
    rescue ScriptError, ArgumentError, EncodingError => problem
      raise InvalidCode, problem.message
    end

    # The program's value, and how it was given.
    def run(execution)
      main = Main.new(execution)
      body, result, ended = @factory.call
      added = @constants.reject { |name| Object.const_defined?(name, false) }
      value = main.instance_exec(&body)
      return [result.call, "assigned"] unless nil == result.call # a BasicObject has no `nil?`
      return [value, "returned"] unless ended.call

      function = @assigns_function && callable?(value) ? value : nil
      function ||= method_function(main, execution) unless @value_from == "function"
      return [call_function(function, execution), "function"] if function
      return [nil, "assigned"] if @assigns_result && (nil == value || @value_from == "none")
      return [nil, "returned"] if nil == value && @writes_null

      [@value_from == "none" ? nil : value, @value_from]
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

    # The text with statements that only show or test the method's function blanked out, if it defines one. Lines
    # and columns of the rest stay.
    def without_examples(text)
      statements = scan(text)
      defined = statements.index { |it| defines?(it) }
      @assigns_function = !defined.nil? && statements[defined].type == :LASGN
      examples = defined ? statements.drop(defined + 1).select { |it| example?(it) && !heredoc?(text, it) } : []
      return text if examples.empty?

      blanked = examples.inject(text) { |rest, node| blank(rest, node) }
      scan(blanked)
      blanked
    rescue SyntaxError
      raise unless blanked

      scan(text) # what is left is not a program
      text
    end

    # Whether a statement defines the method's function: `def add(x)`, `add = ->(x) { … }`, `add = proc { |x| … }`.
    def defines?(node)
      name, value = node.children
      return name == @method if node.type == :DEFN
      return false unless node.type == :LASGN && name == @method && NODE === value

      value.type == :LAMBDA || makes_function?(value.type == :ITER ? value.children[0] : value)
    end

    # `lambda`, `proc` and `Proc.new` with a block, `method(:name)`.
    def makes_function?(call)
      first, second = call.children
      case call.type
      when :FCALL then %i[lambda proc method].include?(first)
      when :CALL then second == :method || (second == :new && first.type == :CONST && first.children[0] == :Proc)
      else false
      end
    end

    def callable?(value) = Proc === value || Method === value

    # Whether a statement may begin a heredoc, whose text lies outside it.
    def heredoc?(text, node)
      text.lines[node.first_lineno - 1..node.last_lineno - 1].any? { |line| line.match?(/<<[~-]?["'`A-Za-z_]/) }
    end

    def blank(text, node)
      lines = text.lines
      (node.first_lineno..node.last_lineno).each do |number|
        line = lines[number - 1].b
        from = number == node.first_lineno ? node.first_column : 0
        to = number == node.last_lineno ? node.last_column : line.chomp.bytesize
        lines[number - 1] = (line[0, from] + " " * (to - from) + line[to..]).force_encoding(text.encoding)
      end
      lines.join
    end

    def example?(node)
      case node.type
      when :FCALL, :VCALL
        name = node.children[0]
        PRINTING.include?(name) || ASSERTION.match?(name) || (name == @method && !uses_arguments?(node))
      when :IF, :UNLESS
        nodes(node.children[0]).any? { |it| it.type == :GVAR && PROGRAM_NAMES.include?(it.children[0]) }
      else false
      end
    end

    def uses_arguments?(node)
      nodes(node).any? { |it| it.type == :VCALL && %i[args kwargs].include?(it.children[0]) }
    end

    def nodes(node)
      [node, *node.children.grep(NODE).flat_map { |child| nodes(child) }]
    end

    # Parsing the bare text also refuses what would close the wrapper around it. Learns which functions its top level
    # calls, which constants it defines, and how its end gives a value. Returns the statements.
    def scan(text)
      @called, @constants, @assigns_result = Set.new, Set.new, false
      top = tree_of(text).children[2]
      statements = top&.type == :BLOCK ? top.children.compact : [top].compact
      @value_from = kind_of_value(statements.last)
      @writes_null = may_be_null?(statements.last)
      pending = [top]
      while (node = pending.pop)
        note(node)
        pending.concat(node.children.grep(NODE)) unless DEFINITIONS.include?(node.type)
      end
      statements
    end

    # Whether a statement at the end gives a nil that the program means: written down, or read from memory.
    def may_be_null?(node)
      return false unless NODE === node

      case node.type
      when :NIL then true
      when :IF, :UNLESS then node.children.drop(1).any? { |it| may_be_null?(it) }
      when :CASE, :CASE2, :WHEN, :AND, :OR, :BEGIN then node.children.any? { |it| may_be_null?(it) }
      when :BLOCK then may_be_null?(node.children.last)
      when :CALL, :QCALL then memory?(node.children[0])
      else false
      end
    end

    def memory?(receiver)
      return %i[context memory].include?(receiver.children[0]) if receiver.type == :VCALL

      %i[CALL QCALL].include?(receiver.type) && memory?(receiver.children[0])
    end

    # How a statement at the end gives the result.
    def kind_of_value(last)
      return "none" if last.nil? || DEFINITIONS.include?(last.type)
      return "expression" unless %i[FCALL VCALL].include?(last.type)
      return "none" if PRINTING.include?(last.children[0])

      last.children[0] == @method ? "function" : "expression"
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
      when :LASGN, :DASGN, :DASGN_CURR then @assigns_result ||= first == :result
      when :CDECL then @constants << first if first.is_a?(Symbol)
      when :CLASS, :MODULE then @constants << first.children[1] if first.type == :COLON2 && !first.children[0]
      end
    end

    # The function that is the method: the one of its name, or the only one of a program that does nothing but define
    # it.
    def method_function(main, execution)
      defined = main.singleton_methods(false)
      name = @method
      name = only_function(defined) unless defined.include?(name)
      name && main.method(name)
    end

    # The function form: the program defines the method and leaves calling it to the harness.
    def call_function(function, execution)
      args = execution.args
      args = [execution.context, *args] if wants_context?(function, execution)
      function.call(*args, **execution.kwargs)
    rescue ArgumentError => problem
      execution.arity_error = problem unless fits?(function, args, execution.kwargs)
      raise
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

    # The only function of a program that does nothing but define it, whatever its name.
    def only_function(defined)
      defined.first if defined.one? && @value_from == "none" && @called.subset?(REQUIRING)
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
