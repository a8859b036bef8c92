module Recurgent
  # A value that cannot be sent. Steps of its path are added innermost first, while unwinding.
  class NotSerializable < TypeError
    attr_writer :root

    def initialize(reason)
      super
      @root, @steps = "$", []
    end

    def within(step)
      @steps << step
      self
    end

    def path = (@root + @steps.reverse.map { |step| Boundary.path_step(step) }.join)[0, MAX_PATH]
  end

  module Boundary
    MAX_RANGE = 1_000_000

    module_function

    # `value` as JSON text; NotSerializable names the place below `root` that cannot be sent.
    def encode(value, root = "$")
      DUMP.call(value.instance_of?(String) ? plain_text(value) : plain(value, {}.compare_by_identity))
    rescue NotSerializable => problem
      problem.root = root
      raise
    end

    # A copy of `value` made of plain JSON types, so that no `to_json` of the program is called.
    def plain(value, ancestors)
      case value
      when String then plain_text(value)
      when Integer, true, false, nil then value
      when Hash, Array then plain_container(value, ancestors)
      when Symbol then plain_text(value.name)
      when Float
        value.finite? ? value : raise(NotSerializable, "#{value} is not a JSON number; use a finite one or nil")
      when Outcome then plain(value.ok? ? value.value : value.to_h, ancestors)
      when Rational then value.denominator == 1 ? value.numerator : plain(value.to_f, ancestors)
      when Set then plain(sorted(value), ancestors)
      when Struct then plain_members(value, ancestors)
      when Range then plain(listed(value), ancestors)
      when Enumerator then plain(items(value), ancestors)
      else record?(value) ? plain_members(value, ancestors) : plain_text(text_of!(value))
      end
    end

    # Whether it is a record of a class that is not in every version of Ruby, or that a program may not have loaded.
    def record?(value)
      (defined?(::OpenStruct) && ::OpenStruct === value) || (defined?(::Data.members) && ::Data === value)
    end

    def plain_members(value, ancestors)
      raise NotSerializable, "contains itself" if ancestors[value]

      ancestors[value] = true
      plain(value.to_h, ancestors).tap { ancestors.delete(value) }
    end

    def sorted(set)
      set.sort
    rescue ArgumentError, NoMethodError # the items cannot be compared: any stable order
      set.sort_by { |item| [item.class.to_s, item.inspect] }
    end

    def listed(range)
      whole = Integer === range.begin && Integer === range.end
      return range.to_a if whole && range.size <= MAX_RANGE

      raise NotSerializable, "only a Range of at most #{MAX_RANGE} integers is a JSON value; use an Array"
    end

    # The items of an enumerator, which may have no end.
    def items(enumerator)
      found = enumerator.first(MAX_RANGE + 1)
      return found if found.size <= MAX_RANGE

      raise NotSerializable, "an Enumerator of more than #{MAX_RANGE} items is not a JSON value; use a shorter Array"
    end

    def plain_container(value, ancestors)
      raise NotSerializable, "contains itself" if ancestors[value]
      raise NotSerializable, "nested deeper than #{MAX_DEPTH} levels" if ancestors.size >= MAX_DEPTH

      ancestors[value] = true
      copy = value.is_a?(Hash) ? plain_object(value, ancestors) : plain_array(value, ancestors)
      ancestors.delete(value)
      copy
    end

    def plain_object(value, ancestors)
      copy = {}
      name = nil
      value.each_pair do |key, item|
        name = nil
        text = plain_key(key)
        raise NotSerializable, "two keys become #{text.inspect}" if copy.key?(text)

        name = text
        copy[name] = plain(item, ancestors)
      end
      copy
    rescue NotSerializable => problem
      raise name ? problem.within(name) : problem
    end

    def plain_array(value, ancestors)
      index = -1
      value.map { |item| index += 1; plain(item, ancestors) }
    rescue NotSerializable => problem
      raise problem.within(index)
    end

    def plain_key(key)
      case key
      when String then plain_text(key)
      when Symbol then plain_text(key.name)
      when Integer then key.to_s
      when Float then key.finite? ? key.to_s : raise(NotSerializable, "key #{key} is not text, a number or a date")
      else text_of(key) || raise(NotSerializable, "a key of class #{key.class} is not text, a number or a date")
      end
    end

    def plain_text(text)
      encoding = text.encoding
      if encoding != Encoding::UTF_8 && encoding != Encoding::US_ASCII
        text = encoding == Encoding::BINARY ? text.dup.force_encoding("UTF-8") : text.encode("UTF-8")
      end
      raise NotSerializable, "text is not valid UTF-8" unless text.valid_encoding?

      text.instance_of?(String) ? text : String.new(text)
    rescue EncodingError
      raise NotSerializable, "text is not valid UTF-8"
    end

    # The text of a value that has one obvious text, such as a date; nil for any other value.
    def text_of(value)
      case value
      when Time then value.strftime("%FT%T#{fraction(value.subsec)}#{value.utc? ? 'Z' : '%:z'}")
      when DateTime then value.strftime("%FT%T#{fraction(value.sec_fraction)}%:z")
      when Date then value.strftime("%F")
      else
        return value.to_s("F") if defined?(::BigDecimal) && ::BigDecimal === value

        value.to_s if (defined?(::Pathname) && ::Pathname === value) || (defined?(::URI::Generic) && ::URI::Generic === value)
      end
    end

    # The same, but any other value cannot be sent.
    def text_of!(value)
      text_of(value) ||
        raise(NotSerializable, "#{Recurgent.class_name(value)} is not a JSON value; #{advice(value)}")
    end

    def advice(value)
      case value
      when Agent then "call one of its methods"
      when Proc, Method then "call it"
      when Enumerable then "use an Array"
      else "use a Hash, an Array, text or a number"
      end
    end

    def fraction(part) = part.zero? ? "" : ".%N"

    def path_step(step)
      return "[#{step}]" if step.is_a?(Integer)

      step.match?(/\A[[:alpha:]_]\w*\z/) ? ".#{step}" : "[#{DUMP.call(step)}]"
    end
  end
end
