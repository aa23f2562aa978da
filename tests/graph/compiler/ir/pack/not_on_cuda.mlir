// run cuda: pack
func.func @main(%x: f32[n, 4], %y: f32[4, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %z = matmul(%x, %y) {precision = "full"} : (f32[n, 4], f32[4, 8]) -> f32[n, 8]
  return %z : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 4], %arg1: f32[4, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = matmul(%arg0, %arg1) {precision = "full"} : (f32[n, 4], f32[4, 8]) -> f32[n, 8]
    return %0 : f32[n, 8]
  }
}
