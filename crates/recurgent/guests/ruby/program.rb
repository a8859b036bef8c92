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
    HEAD = "->() { result = __recurgent_ended = nil; __recurgent_assigned = :unset; " \
           "[->() { __recurgent_value = proc {\n"
    TAIL = "\n}.call; __recurgent_ended = true; __recurgent_value }, ->() { result }, ->() { __recurgent_ended }, " \
           "->() { :unset != __recurgent_assigned }] }"
    # Also assigned whatever `result` is assigned, so that a branch not taken is not taken for an assignment.
    MARK = "__recurgent_assigned = "
    NODE = RubyVM::AbstractSyntaxTree::Node
    DEFINITIONS = %i[DEFN DEFS CLASS MODULE SCLASS].freeze
    # What a program may call and still only define.
    REQUIRING = Set[:require, :require_relative].freeze
    PRINTING = Set[:puts, :print, :p, :pp, :printf, :putc].freeze
    RAISING = Set[:raise, :fail, :abort].freeze
    ASSERTION = /\Aassert/.freeze
    LITERALS = Set[:LIT, :STR, :TRUE, :FALSE, :NIL, :LIST, :ARRAY, :ZLIST, :ZARRAY, :HASH, :INTEGER, :FLOAT, :SYM,
                   :RATIONAL, :IMAGINARY].freeze
    PROGRAM_NAMES = Set[:$0, :$PROGRAM_NAME].freeze

    def initialize(source, method)
      @method = Function.name_in(source, method.name).to_sym
      text = marked(without_examples(without_data(source)))
      # A function that is a local variable can be seen at the end of the text only.
      tail = @assigns_function ? "\n#{@method}#{TAIL}" : TAIL
      @factory = COMPILE.call(HEAD + text + tail, FILE, FILE, 0, frozen_string_literal: frozen?(text)).eval
    rescue ScriptError, ArgumentError, EncodingError => problem
      raise InvalidCode, problem.message
    end

    # The program's value, and how it was given.
    def run(execution)
      main = Main.new(execution)
      body, result, ended, assigned = @factory.call
      hidden = RUNTIME_CLASSES.slice(*@constants)
      hidden.each_key { |name| Object.send(:remove_const, name) }
      added = @constants.reject { |name| Object.const_defined?(name, false) }
      begin
        value = main.instance_exec(&body)
      rescue SystemExit => problem # with success it is an end like any other
        raise unless problem.success?

        return after_exit(main, result, execution)
      end
      # `result = add(1, 2)` after `def add` shows how it is called; the call has arguments of its own.
      unless @answers_example && !(execution.args.empty? && execution.kwargs.empty?)
        return [result.call, "assigned"] unless nil == result.call # a BasicObject has no `nil?`
        return [value, "returned"] unless ended.call
      end

      function = @assigns_function && callable?(value) ? value : nil
      function ||= method_function(main, execution) unless @value_from == "function"
      return called(function, execution) if function
      if @assigns_result && (nil == value || @value_from == "none")
        return [nil, "assigned"] if !@marked || assigned.call
        return [nil, "none"]
      end
      return [nil, "returned"] if nil == value && @writes_null

      [@value_from == "none" ? nil : value, @value_from]
    ensure
      added&.each { |name| Object.send(:remove_const, name) if Object.const_defined?(name, false) }
      hidden&.each { |name, kind| Object.const_set(name, kind) unless Object.const_defined?(name, false) }
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
      @answers_example = !defined.nil? && statements[defined].type != :LASGN && answers_example?(statements)
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

    # Whether a statement defines the method's function: `def add(x)`, `def self.add(x)`, `add = ->(x) { … }`,
    # `add = proc { |x| … }`.
    def defines?(node)
      name, value = node.children
      return name == @method if node.type == :DEFN
      return value == @method && name.type == :SELF if node.type == :DEFS
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

    # The text with marks where it assigns `result`, if it does so only under a condition. Lines stay.
    def marked(text)
      return text unless @assigns_result

      statements = scan(text)
      assignments = statements.flat_map { |it| own_nodes(it) }.select { |it| assigns_result?(it) }
      @assigns_result &&= assignments.empty? || !assignments.all? { |it| printing?(it.children[1]) }
      values = assignments.map { |it| it.children[1] }
      return text if values.empty? || statements.any? { |it| assigns_result?(it) } || !values.all?(NODE)

      lines = text.lines.map(&:b)
      places = values.map { |it| [it.first_lineno, it.first_column] }.uniq
      places.sort.reverse_each { |line, column| lines[line - 1].insert(column, MARK) }
      changed = lines.join.force_encoding(text.encoding)
      @marked = parses?(changed)
      @marked ? changed : text
    end

    def assigns_result?(node) = gives_result?(node) && node.type != :RETURN

    def printing?(node) = NODE === node && node.type == :FCALL && PRINTING.include?(node.children[0])

    # Whether every result that the program gives at top level is the method's function called with literals.
    def answers_example?(statements)
      given = statements.sum { |it| own_nodes(it).count { |node| gives_result?(node) } }
      given.positive? && given == statements.count { |it| gives_result?(it) && literal_call?(it.children.last) }
    end

    def gives_result?(node)
      node.type == :RETURN || (%i[LASGN DASGN DASGN_CURR].include?(node.type) && node.children[0] == :result)
    end

    # Whether it calls the method's function with at least one argument, and with literals only.
    def literal_call?(node)
      return false unless NODE === node && node.type == :FCALL && node.children[0] == @method

      nodes(node.children[1]).all? { |it| LITERALS.include?(it.type) }
    end

    # A statement and what is inside it, without the bodies of functions and classes.
    def own_nodes(node)
      return [] if DEFINITIONS.include?(node.type)

      [node, *node.children.grep(NODE).flat_map { |child| own_nodes(child) }]
    end

    def example?(node)
      case node.type
      when :FCALL, :VCALL
        name = node.children[0]
        PRINTING.include?(name) || ASSERTION.match?(name) || (name == @method && !uses_arguments?(node))
      when :CALL then node.children[0].type == :SELF && node.children[1] == @method && !uses_arguments?(node)
      when :IF, :UNLESS
        nodes(node.children[0]).any? { |it| it.type == :GVAR && PROGRAM_NAMES.include?(it.children[0]) } ||
          self_check?(node)
      when :OR, :AND then self_check?(node)
      else false
      end
    end

    # Whether it only raises if the method's function does not give what it should: `raise "…" unless add(1, 2) == 3`.
    def self_check?(node)
      test, *rest = node.children
      raises = rest.compact.all? { |it| NODE === it && it.type == :FCALL && RAISING.include?(it.children[0]) }
      raises && !uses_arguments?(node) && nodes(test).any? { |it| it.type == :FCALL && it.children[0] == @method }
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
      @called, @constants, @takes_options, @assigns_result = Set.new, Set.new, Set.new, false
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
      return "none" if last.type == :LASGN && printing?(last.children[1])
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
      @takes_options << first if takes_options?(second)
      case node.type
      when :FCALL, :VCALL then @called << first
      when :CALL then @called << second if first.type == :SELF
      when :LASGN, :DASGN, :DASGN_CURR then @assigns_result ||= first == :result
      when :CDECL then @constants << first if first.is_a?(Symbol)
      when :CLASS, :MODULE then @constants << first.children.last unless first.children.size == 2 && first.children[0]
      end
    end

    # Whether the scope of a `def` or a lambda has a last optional parameter with the default `{}`.
    def takes_options?(scope)
      return false unless NODE === scope

      scope = scope.children.grep(NODE).find { |it| it.type == :SCOPE } if %i[LAMBDA ITER].include?(scope.type)
      return false unless scope&.type == :SCOPE && NODE === scope.children[1]

      optional = scope.children[1].children.grep(NODE).find { |it| it.type == :OPT_ARG }
      optional = optional.children[1] while optional&.children&.at(1)
      default = optional&.children&.first&.children&.at(1)
      NODE === default && default.type == :HASH && default.children.compact.empty?
    end

    # The function that is the method: the one of its name, or the only one of a program that does nothing but define
    # it.
    def method_function(main, execution)
      defined = main.singleton_methods(false)
      name = @method
      name = only_function(defined) unless defined.include?(name)
      name && main.method(name)
    end

    # The result of a program whose text ends in `exit`.
    def after_exit(main, result, execution)
      is_example = @answers_example && !(execution.args.empty? && execution.kwargs.empty?)
      return [result.call, "assigned"] unless is_example || nil == result.call

      function = method_function(main, execution)
      function ? called(function, execution) : [nil, "none"]
    end

    # What the method's function gives, and how. Nothing, if it ends the program with success.
    def called(function, execution)
      [call_function(function, execution), "function"]
    rescue SystemExit => problem
      raise unless problem.success?

      [nil, "none"]
    end

    # The function form: the program defines the method and leaves calling it to the harness.
    def call_function(function, execution)
      args = execution.args
      args = [execution.context, *args] if wants_context?(function, execution)
      args, kwargs = bound(function, args, Function.bound_keywords(function, args.size, execution.kwargs))
      refuse_keywords(function, kwargs) unless kwargs.empty? || takes_keywords?(function, args)
      function.call(*args, **kwargs)
    rescue ArgumentError => problem
      execution.arity_error = problem unless fits?(function, args, kwargs)
      raise
    end

    # The arguments, with those given by the name of a positional parameter at its place, as Python binds them. One
    # after a parameter that is not given has no place.
    def bound(function, args, kwargs)
      free = function.parameters.select { |kind, _| %i[req opt].include?(kind) }.drop(args.size).map(&:last)
      named = free.take_while { |name| kwargs.key?(name) }
      named.empty? ? [args, kwargs] : [args + kwargs.values_at(*named), kwargs.except(*named)]
    end

    # Ruby would pass keywords that no parameter takes as one more positional argument, a Hash: a mistyped name would
    # give a wrong answer. The error has the function's line, like Ruby's own errors about arguments.
    def refuse_keywords(function, kwargs)
      names = kwargs.keys.map { |name| ":#{name}" }.join(", ")
      parameters = function.parameters.filter_map(&:last).join(", ")
      file, line = function.source_location
      raise ArgumentError, "no parameter takes the keyword #{names}; the function takes (#{parameters})",
            ["#{file}:#{line}:in `#{@method}'", *caller]
    end

    # Whether a function takes keywords after these arguments, also as a last parameter `options = {}`. What functions
    # of the interpreter take is not known.
    def takes_keywords?(function, args)
      kinds = function.parameters.map(&:first)
      return true if function.source_location.nil? || kinds.any? { |kind| %i[key keyreq keyrest].include?(kind) }

      name = Method === function ? function.name : @method
      @takes_options.include?(name) && kinds.last == :opt && args.size == kinds.size - 1
    end

    # Whether a function takes these arguments.
    def fits?(function, args, kwargs)
      return false unless kwargs.empty? || takes_keywords?(function, args)

      kinds = function.parameters.group_by(&:first).transform_values { |list| list.map(&:last) }
      keywords = kinds.values_at(:keyreq, :key).compact.flatten
      required = kinds.fetch(:req, []).size
      most = kinds.key?(:rest) ? args.size : required + kinds.fetch(:opt, []).size
      args.size.between?(required, most) && (keywords.empty? || fits_keywords?(kinds, keywords, kwargs))
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
