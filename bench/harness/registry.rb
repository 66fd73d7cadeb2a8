# frozen_string_literal: true

require_relative "row"
require_relative "service"
require_relative "stream_row"
require_relative "tcp_row"
require_relative "clients"
require_relative "http_row"
require_relative "limits"
require_relative "memory_row"
require_relative "cold_row"
require_relative "growth_row"
require_relative "peer"
require_relative "call_row"

# The benchmark: rows (workloads) by peers (ways to run them), each pair measured in processes of
# its own. Adding a row or a peer is adding one file.
module Bench
  ROOT = File.expand_path("../..", __dir__)

  module_function

  # Array of String: the names of all rows.
  def row_names
    names_in("rows")
  end

  # Array of String: the names of all peers; ours behind the others, the floor at the end.
  def peer_names
    names_in("peers").sort_by { |name| [peer(name).floor? ? 2 : peer(name).ours? ? 1 : 0, name] }
  end

  # The Row subclass of that name. Raises ArgumentError if there is none.
  def row(name)
    find("rows", name, Rows)
  end

  # The Peer subclass of that name. Raises ArgumentError if there is none.
  def peer(name)
    find("peers", name, Peers)
  end

  # The Service subclass of that name. Raises ArgumentError if there is none.
  def service(name)
    find("services", name, Services)
  end

  # Hash of the gems, by name and requirement, that bench/peers-install has not installed.
  def missing_gems(gems)
    gems.reject { |name, requirement| installed_gem(name, requirement) }
  end

  # The newest version (String) of the gem in peers_dir; nil of none.
  def installed_gem(name, requirement)
    files = Dir.glob(File.join(peers_dir, "specifications", "#{name}-*.gemspec")).map { |file| File.basename(file) }
    versions = files.filter_map { |file| file[/\A#{Regexp.escape(name)}-(\d[.\w]*?)(-[-\w]+)?\.gemspec\z/, 1] }.map { |it| Gem::Version.new(it) }
    versions.select { |version| Gem::Requirement.new(requirement).satisfied_by?(version) }.max&.to_s
  end

  # String: the folder that bench/peers-install fills for the running Ruby. Outside of the
  # checkout: compiled gems of several Rubies must not meet, and `make clean` need not know them.
  def peers_dir
    cache = ENV["EAGAIN_CACHE"]
    cache = File.join(ENV["XDG_CACHE_HOME"] || File.join(Dir.home, ".cache"), "eagain") if cache.to_s.empty?
    File.join(cache, "peers-#{RUBY_VERSION}")
  end

  def names_in(folder)
    Dir.children(File.join(ROOT, "bench", folder)).grep(/\.rb\z/).map { |file| file.delete_suffix(".rb") }.sort
  end

  def find(folder, name, namespace)
    path = File.join(ROOT, "bench", folder, "#{name}.rb")
    unless name.match?(/\A\w+\z/) && File.file?(path)
      raise ArgumentError, "no #{name} among the #{folder}: #{names_in(folder).join(", ")}"
    end

    require path
    namespace.const_get(name.split("_").map(&:capitalize).join)
  end

  private_class_method :names_in, :find
end
