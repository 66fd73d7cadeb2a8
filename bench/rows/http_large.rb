# frozen_string_literal: true

require "net/http"

module Bench
  module Rows
    # Net::HTTP as a downloader: the bodies are taken in pieces, as what is larger than memory has to be.
    class HttpLarge < HttpRow
      CLIENTS = 20
      DOWNLOADS = 20
      SIZE = 1_000_000

      title "Net::HTTP, 20 sessions of 20 downloads, 1 MB each"
      unit "download"

      def operations
        CLIENTS * scaled(DOWNLOADS)
      end

      def call
        @bytes = 0
        port = listen(CLIENTS)
        CLIENTS.times { spawn { download(port) } }
        wait
      end

      def result
        @bytes / SIZE
      end

      private

      def body
        @body ||= "0123456789" * (SIZE / 10)
      end

      def download(port)
        bytes = 0
        Net::HTTP.start("127.0.0.1", port, nil, nil) do |http|
          scaled(DOWNLOADS).times do
            http.request_get("/file") { |answer| answer.read_body { |piece| bytes += piece.bytesize } }
          end
        end
        @bytes += bytes
      end
    end
  end
end
