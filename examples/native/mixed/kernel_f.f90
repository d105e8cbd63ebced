! A Fortran kernel for Python, with the same run.
module kernel_f
   use, intrinsic :: iso_c_binding, only: c_double, c_int
   use scope_profiler
   implicit none

contains

   function kernel_norm(count) bind(c) result(norm)
      integer(c_int), value :: count
      real(c_double) :: norm
      integer :: i

      call sp_begin_name("kernel_norm")
      norm = 0
      do i = 1, count
         norm = norm + dble(i)**2
      end do
      norm = sqrt(norm)
      call sp_end_name("kernel_norm")
   end function kernel_norm

   !> Two threads of OpenMP; each is a lane of the run.
   subroutine kernel_team(count) bind(c)
      integer(c_int), value :: count
      real(c_double) :: sum
      integer :: part, i

      call sp_begin_name("kernel_team")
      sum = 0
      !$omp parallel do num_threads(2) schedule(static, 1) reduction(+:sum) private(i)
      do part = 1, 2
         call sp_begin_name("part")
         do i = 1, count
            sum = sum + dble(i)
         end do
         call sp_end_name("part")
      end do
      !$omp end parallel do
      call sp_end_name("kernel_team")
   end subroutine kernel_team

end module kernel_f
