module Recurgent
  # Tools from outside that a program may use, found by words.
  class Tools
    def initialize(execution)
      @execution = execution
    end

    def search(words) = @execution.search_tools(words)
  end

  # One `execute`: the call, and what the program may ask for while it runs.
  class Execution
    class << self
      attr_accessor :current
    end

    attr_reader :role, :method_name, :args, :kwargs, :context
    # Raised because the call's arguments do not fit the method's function.
    attr_accessor :arity_error
    attr_reader :contacts

    def initialize(channel, context, frame)
      @channel, @context, @open = channel, context, true
      @contacts = Contacts.new
      @role, @method_name = frame["role"], frame["method_name"]
      @args = Record.wrap(frame["args"])
      @kwargs = Keywords.new.merge!(Record.wrap(frame["kwargs"]))
      Execution.current = self
    end

    def ask(kind, **fields)
      text = +""
      fields.each { |name, value| text << %(,"#{name}":#{Boundary.encode(value, "$#{name}")}) }
      # Before the lock: a forked copy of it may never open.
      raise AskError.new("protocol", "a forked process cannot ask the host") if Process.pid != @channel.pid

      answer = @channel.synchronize do
        raise AskError.new("protocol", "the call this thread belongs to has ended") unless @open

        @channel.exchange(kind, text)
      end
      answer["error"] ? raise(ask_error(answer["error"])) : answer
    end

    # The status of an HTTP response that Ruby's own client received, and the method of the program that asked for it.
    def received(status, method)
      @http_status, @receiving_method = status, method
    end

    # The status of the last response, if one of these frames may hold it: the method that asked for it has not returned.
    def http_status(frames)
      held = frames.any? { |frame| frame.start_with?("#{FILE}:") && frame.end_with?("#{@receiving_method}'") }
      @http_status if held
    end

    # Send `done`. From here on threads the program left behind can ask nothing.
    def finish(done)
      @channel.synchronize do
        @open = false
        @channel.send_frame(done)
      end
    end

    def tool(name) = Agent.send(:new, self, ask("tool", name: name))

    def delegate(role, detached: false, **options)
      Agent.send(:new, self, ask("delegate", role: role, options: options, detached: detached))
    end

    def search_tools(words) = Record.wrap(ask("search_tools", words: words.to_s)["value"])

    def content(ref) = Record.wrap(ask("content", ref: ref)["value"])

    # The host ends the run.
    def look(value, why) = ask("look", value: value, why: why.to_s)

    def infer(instruction, data, schema, each)
      raise TypeError, "infer needs a text that says what is asked, then the data" unless String === instruction

      fields = { instruction: instruction, data: data, schema: schema, each: each&.to_a }
      Record.wrap(ask("infer", **fields)["value"])
    end

    private

    def ask_error(error)
      kind = error["error_type"] == "tool_registry_violation" ? ToolRegistryViolation : AskError
      kind.new(error["error_type"], error["error_message"])
    end
  end
end
