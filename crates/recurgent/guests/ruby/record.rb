module Recurgent
  # A JSON object from the host: keys are strings, and symbols find them too.
  class Record < Hash
    def self.wrap(value)
      case value
      when Hash then value.each_with_object(new) { |(key, item), record| record[key] = wrap(item) }
      when Array then value.map { |item| wrap(item) }
      else value
      end
    end

    %i[[] fetch delete assoc key? has_key? include? member?].each do |name|
      define_method(name) { |key, *rest, &block| super(stored(key), *rest, &block) }
    end

    %i[values_at fetch_values slice except].each do |name|
      define_method(name) { |*keys, &block| super(*keys.map { |key| stored(key) }, &block) }
    end

    %i[merge merge! update].each do |name|
      define_method(name) { |*others, &block| super(*others.map { |other| stored_keys(other) }, &block) }
    end

    def []=(key, value)
      super(stored(key), value)
    end
    alias store []=

    def replace(other) = super(stored_keys(other))

    def dig(key, *rest)
      value = self[key]
      rest.empty? || value.nil? ? value : value.dig(*rest)
    end

    def deconstruct_keys(wanted)
      (wanted || keys).select { |key| key?(key) }.to_h { |key| [key.to_sym, self[key]] }
    end

    private

    def stored(key) = key.is_a?(Symbol) ? key.name : key
    def stored_keys(other) = other.to_hash.to_h { |key, value| [stored(key), value] }
  end

  # A call's keywords: stored under symbols, so that `**kwargs` passes them on.
  class Keywords < Record
    private

    def stored(key) = key.is_a?(String) ? key.to_sym : key
  end
end
