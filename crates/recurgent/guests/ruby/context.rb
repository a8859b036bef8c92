module Recurgent
  # A page of history records, oldest first. The context hands out the latest.
  class History < Array
    KEY = "conversation_history"
    ASK = ["history", { limit: 100 }].freeze

    # The page before a call, given as its record or id; without one, the page before this one.
    def before(call = first)
      return self if call.nil?

      call_id = call.is_a?(Hash) ? call["call_id"] : call.to_s
      kind, fields = ASK
      History.new(Record.wrap(Execution.current.ask(kind, **fields, before: call_id)["value"])).freeze
    end
  end

  # The registry by name. Plain data written to a name holds for this call only, which a note says.
  class ToolsView < Record
    CHANGING = %i[delete clear merge! update replace shift delete_if reject! select! filter! keep_if compact!
                  transform_values! transform_keys!].freeze

    def self.of(value)
      value.each_with_object(new) { |(name, item), view| view.__send__(:keep, name, Record.wrap(item).freeze) }
    end

    CHANGING.each do |name|
      define_method(name) { |*, **| raise FrozenError, "context.tools is read-only: change a copy" }
    end

    def []=(name, data)
      warn "note: context.tools[#{name.inspect}] holds for this call only; a tool is kept by delegate"
      keep(name, data)
    end
    alias store []=

    private

    def keep(name, data) = Hash.instance_method(:[]=).bind_call(self, stored(name), data)
  end

  # The agent's context. A value handed out may be changed in place, so reading a key touches it;
  # `delta` re-encodes only touched keys. Looking at keys alone touches nothing.
  class Context < Record
    # Keys answered by the host on first use in an execution; read-only, never part of the delta.
    LAZY = { "tools" => ["tools", {}], History::KEY => History::ASK }.freeze
    KEYED = %i[[] []= store fetch delete assoc dig values_at fetch_values slice deconstruct_keys
               key? has_key? include? member? to_hash].freeze
    VALUELESS = %i[keys size length empty? each_key inspect to_s hash default default_proc
                   compare_by_identity? eql? ==].freeze
    GET, SET, DELETE, HAS, CLEAR, KEYS = %i[[] []= delete key? clear keys].map { |name| Hash.instance_method(name) }

    # What else every program expects of a Hash; a key named like another method of it is read by that name.
    EXPECTED = %i[each each_pair values to_a to_h map select filter reject any? all? none? sort_by min_by max_by
                  sum_by merge update replace compact delete_if keep_if transform_values].freeze

    # Everything else Hash offers may hand out any value.
    (Hash.instance_methods(false) + Enumerable.instance_methods - KEYED - VALUELESS).each do |name|
      may_be_key = !EXPECTED.include?(name) && name.match?(/\A[a-z_]\w*\z/)
      define_method(name) do |*args, **options, &block|
        is_read = may_be_key && args.empty? && options.empty? && !block && HAS.bind_call(self, name.name)
        is_read ? self[name] : touching { super(*args, **options, &block) }
      end
    end

    %i[[] fetch delete assoc].each do |name|
      define_method(name) do |key, *rest, &block|
        key = stored(key)
        return lazy(key) if LAZY.key?(key) && name != :delete

        writable(key) if name == :delete
        touch(key)
        if name == :fetch && rest.empty? && !block && !HAS.bind_call(self, key)
          raise KeyError.new(missing(key), receiver: self, key: key)
        end
        super(key, *rest, &block)
      end
    end

    %i[values_at fetch_values slice].each do |name|
      define_method(name) do |*keys, &block|
        keys.each { |key| touch(stored(key)) }
        super(*keys, &block)
      end
    end

    %i[key? has_key? include? member?].each do |name|
      define_method(name) { |key| LAZY.key?(stored(key)) || super(key) }
    end

    def initialize
      super
      @version, @agreed, @touched, @stale, @lazy = nil, {}, Set.new, Set.new, {}
    end

    def []=(key, value)
      key = writable(stored(key))
      touch(key)
      super
    end
    alias store []=

    def update(*others)
      others.flat_map { |other| other.to_hash.to_a }.each do |key, value|
        self[key] = block_given? && key?(key) ? yield(key, self[key], value) : value
      end
      self
    end
    alias merge! update

    def replace(other)
      other = other.to_hash.dup
      clear
      update(other)
    end

    # Copies are plain records: they share values, but not the tracking.
    def dup = Record.new.merge!(self)
    def clone(**) = dup

    %i[merge compact].each do |name|
      define_method(name) { |*args, &block| dup.public_send(name, *args, &block) }
    end

    def method_missing(name, *args)
      key = name.name
      return self[key.chomp("=")] = args[0] if key.end_with?("=") && args.size == 1
      return self[key] if args.empty? && key?(key)

      args.empty? ? raise(NoMethodError.new(missing(key), name, args, receiver: self)) : super
    end

    def respond_to_missing?(name, _private = false) = name.end_with?("=") || key?(name)

    # What is wrong when a key is read that the context does not have; the same text in every guest.
    def missing(name)
      keys = KEYS.bind_call(self).map(&:to_s).sort
      held = keys.empty? ? "it is empty" : "it has #{keys.first(MAX_NAMED_KEYS).join(', ')}"
      %(the context has no key "#{name}"; #{held})
    end
    private :missing

    # Go from the version agreed last to the one the host names.
    def __advance(change)
      if change["base"].nil?
        CLEAR.bind_call(self)
        @agreed.clear
      elsif change["base"] != @version
        raise Refusal.new("UnknownBase", "this worker holds version #{@version}")
      else
        restore(@stale - change["set"].keys - change["unset"])
      end
      apply(change)
      @touched, @lazy = Set.new, {}
      @stale = @touched # every touched key is suspect until `__delta` says which changed
    end

    # The `context` of a `done`: touched keys whose text differs from the agreed one.
    def __delta
      changed, removed = {}, []
      @touched.to_a.each do |key|
        next if LAZY.key?(key)

        if HAS.bind_call(self, key)
          text = Boundary.encode(GET.bind_call(self, key), "$context#{Boundary.path_step(key)}")
          changed[key] = text if text != @agreed[key]
        elsif @agreed.key?(key)
          removed << key
        end
      end
      @stale = Set.new(changed.keys + removed)
      entries = changed.map { |key, text| "#{Boundary.encode(key)}:#{text}" }
      %({"set":{#{entries.join(',')}},"unset":#{Boundary.encode(removed)}})
    end

    private

    def apply(change)
      change["unset"].each { |key| forget(key) }
      change["set"].each do |key, value|
        SET.bind_call(self, key, value)
        @agreed.delete(key)
      end
      @version = change["version"]
    end

    def forget(key)
      DELETE.bind_call(self, key)
      @agreed.delete(key)
    end

    def restore(keys)
      keys.each do |key|
        next DELETE.bind_call(self, key) unless @agreed.key?(key)

        SET.bind_call(self, key, Record.wrap(Recurgent.load(@agreed[key])))
      end
    end

    # Keep the text the host agreed to, and only now make records of the parsed value.
    def touch(key)
      return unless @touched.add?(key)
      return if @agreed.key?(key) || !HAS.bind_call(self, key)

      value = GET.bind_call(self, key)
      @agreed[key] = Boundary.encode(value)
      SET.bind_call(self, key, Record.wrap(value))
    end

    def touch_all = keys.each { |key| touch(key) }

    # Around what may hand out or add any value.
    def touching
      touch_all
      yield
    ensure
      @touched.merge(keys)
    end

    def writable(key)
      raise FrozenError, "context[#{key.inspect}] is read-only: use another key" if LAZY.key?(key)
      raise TypeError, "a context key is text, not #{key.inspect}" unless key.is_a?(String)

      key
    end

    def stored(key) = key.is_a?(Integer) ? key.to_s : super

    def lazy(key)
      @lazy[key] ||= begin
        kind, fields = LAZY[key]
        value = Execution.current.ask(kind, **fields)["value"]
        key == History::KEY ? History.new(Record.wrap(value)).freeze : ToolsView.of(value)
      end
    end
  end
end
