module Recurgent
  # `self` of a program. Its own `def`s land on this object, beside these, and so see them.
  class Main
    def initialize(execution)
      @execution = execution
    end

    def context = @execution.context
    alias memory context
    alias runtime_context context
    def args = @execution.args
    def kwargs = @execution.kwargs
    def tool(name) = @execution.tool(name)
    def delegate(role, **options) = @execution.delegate(role, **options)
    def tools = Tools.new(@execution)
    def content(ref) = @execution.content(ref)
    def infer(instruction, about = nil, form = nil, data: about, schema: form, each: nil) =
      @execution.infer(instruction, data, schema, each)
    def look(value, why = "") = @execution.look(value, why)
    def remember(**entries) = context.update(entries)
    def to_s = "main"
    alias inspect to_s

    private

    # `self.values` reads as if this object kept something: what is kept between calls is in the context.
    def method_missing(name, *args)
      super
    rescue NoMethodError => problem
      key = name.name.delete_suffix("=")
      raise unless args.size == (key == name.name ? 0 : 1) && key.match?(/\A[a-z_]\w*\z/)

      hint = "what is kept between calls is in the context: context[:#{key}] ||= …"
      explained = NoMethodError.new("#{problem.message.lines.first.chomp}; #{hint}", name, receiver: self)
      explained.set_backtrace(problem.backtrace.drop(1)) # without this method
      raise explained, cause: nil
    end

    def respond_to_missing?(*) = false
    def include(*modules) = extend(*modules)
    def private(*) = nil
    alias public private
  end
end
